// Explorers: inputs with labels, and a moving picture in place of the still one. Without scripts the still one stays.
const number = (value) => Number(value).toLocaleString("en", { maximumFractionDigits: 3 });

const slider = (param, id, moved) => {
  const { name, min, max, step } = param.bind;
  const row = document.createElement("div");
  const label = Object.assign(document.createElement("label"), { htmlFor: id, textContent: name });
  const input = Object.assign(document.createElement("input"), { type: "range", id, min, max, step, value: param.value });
  const shown = Object.assign(document.createElement("output"), { textContent: number(param.value) });
  shown.htmlFor.add(id);
  input.name = param.name;
  input.addEventListener("input", () => {
    shown.textContent = number(input.value);
    moved(param.name, Number(input.value));
  });
  row.append(label, input, shown);
  return row;
};

// The words of all bars or curves, for who hears the page; said when a slider has come to rest.
const said = (view, spec) => spec.usermeta.names
  .map((name, i) => `${name}: ${view.signal(`words_${i}`)}`).join("; ");

const explore = async (holder, place) => {
  const spec = JSON.parse(holder.textContent);
  const still = holder.parentElement.querySelector("img");
  const box = Object.assign(document.createElement("div"), { className: "explorer" });
  const inputs = Object.assign(document.createElement("div"), { className: "inputs" });
  const picture = Object.assign(document.createElement("div"), { className: "picture" });
  const news = Object.assign(document.createElement("p"), { className: "sr-only" });
  news.setAttribute("role", "status");
  box.append(inputs, picture, news);
  holder.before(box);
  const bound = spec.params.filter((param) => param.bind);
  const bare = { ...spec, width: picture.clientWidth, params: spec.params.map(({ bind, ...rest }) => rest) };
  try {
    const { view } = await vegaEmbed(picture, bare, { mode: "vega-lite", actions: false, renderer: "svg" });
    const chart = picture.querySelector("svg");
    chart.setAttribute("aria-hidden", "true"); // what it shows is said in words beside it
    let rest;
    const moved = async (name, value) => {
      await view.signal(name, value).runAsync();
      clearTimeout(rest);
      rest = setTimeout(() => { news.textContent = said(view, spec); }, 400);
    };
    bound.forEach((param, i) => inputs.append(slider(param, `explorer-${place}-${i}`, moved)));
    news.textContent = said(view, spec);
    new ResizeObserver(() => view.width(picture.clientWidth).runAsync()).observe(picture);
    still.hidden = true;
    box.view = view;
  } catch (error) {
    box.remove(); // and the still picture stays
    throw error;
  }
};

document.querySelectorAll("script.explorer").forEach(explore);
