// The race: one training step with the settings of the sliders, in place of the still picture. It calculates what
// d2lpar.pages.race does: assign_buckets, then when_sent with ring_s.
{
  const [WIDTH, LEFT, TOP, ROW] = [360, 48, 14, 30]; // of the picture, left of the bars, above them, of a rank's row

  const draw = window.drawSvg; // of svg.js

  // Sizes of the buckets, from the last layer backwards, with the layer that completes each.
  const assign = ({ layers, layer_bytes }, cap) => {
    const closed = [];
    let size = 0;
    for (let i = layers - 1; i >= 0; i -= 1) {
      size += layer_bytes;
      if (size >= cap || i === 0) {
        closed.push({ size, last: i });
        size = 0;
      }
    }
    return closed;
  };

  const step = (data, { way, ranks, cap_mb, latency_ms, gb_per_s }) => {
    const cap = { "after backward": Infinity, "in hooks": 0, "in buckets": cap_mb * 1e6 }[way];
    let free = 0;
    const sent = assign(data, cap).map(({ size, last }) => {
      const ready = data.forward_s + data.backward_s * (data.layers - last) / data.layers;
      const begin = Math.max(free, ready);
      free = begin + 2 * (ranks - 1) * (1e-3 * latency_ms + size / ranks * 1e-9 / gb_per_s);
      return [begin, free];
    });
    const computed = data.forward_s + data.backward_s;
    const all = Math.max(computed, free);
    return { sent, all, waits: all - computed };
  };

  const say = ({ ranks }, { sent, all, waits }) =>
    `The gradients are sent in ${sent.length} piece${sent.length > 1 ? "s" : ""}, with ${2 * (ranks - 1)} messages each. `
    + `The step takes ${(1e3 * all).toFixed(1)} ms. For ${(1e3 * waits).toFixed(1)} ms of it `
    + `(${(100 * waits / all).toFixed(0)}%), the ranks only wait.`;

  const picture = (data, ranks, { sent, all }, place) => {
    const { forward_s: forward, backward_s: backward, colors } = data;
    const height = TOP + ranks * ROW + 34;
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("viewBox", `0 0 ${WIDTH} ${height}`);
    svg.setAttribute("aria-hidden", "true"); // what it shows is said in words below it
    const most = 0.2 * 2 ** Math.max(0, Math.ceil(Math.log2(all / 0.2))); // one axis while a slider moves
    const x = (seconds) => LEFT + (WIDTH - LEFT - 16) * seconds / most;
    for (let i = 0; i <= 4; i += 1) {
      const at = x(most * i / 4);
      draw(svg, "line", { x1: at, x2: at, y1: TOP, y2: TOP + ranks * ROW, stroke: "#d0d0d0" });
      draw(svg, "text", { x: at, y: TOP + ranks * ROW + 14, "text-anchor": "middle" }, `${Math.round(1e3 * most * i / 4)}`);
    }
    draw(svg, "text", { x: x(most / 2), y: height - 4, "text-anchor": "middle" }, "time (ms)");
    const span = (begin, end, y, high, fill, stroke, name) =>
      draw(svg, "rect", { x: x(begin), y, width: x(end) - x(begin), height: high, fill, stroke, "stroke-width": 0.6, class: name });
    for (let rank = 0; rank < ranks; rank += 1) {
      const [y, color, id] = [TOP + rank * ROW, colors[rank], `race-${place}-${rank}`];
      const hatch = draw(svg, "pattern", { id, width: 4, height: 4, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" });
      draw(hatch, "rect", { width: 4, height: 4, fill: "#fff" });
      draw(hatch, "line", { x1: 0, y1: 0, x2: 0, y2: 4, stroke: color, "stroke-width": 2 });
      draw(svg, "text", { x: LEFT - 6, y: y + 16, "text-anchor": "end" }, `rank ${rank}`);
      span(0, forward, y + 3, 12, `${color}66`, color, "forward");
      span(forward, forward + backward, y + 3, 12, color, color, "backward");
      sent.forEach(([begin, end]) => span(begin, end, y + 16, 10, `url(#${id})`, color, "allreduce"));
    }
    [["forward", 0, forward], ["backward", forward, forward + backward]].forEach(([name, begin, end]) => {
      if (x(end) - x(begin) > 48) draw(svg, "text", { x: x((begin + end) / 2), y: TOP - 3, "text-anchor": "middle" }, name);
    });
    draw(svg, "line", { x1: x(all), x2: x(all), y1: TOP, y2: TOP + ranks * ROW, stroke: "black", "stroke-dasharray": "4 3" });
    return svg;
  };

  document.querySelectorAll("script.race").forEach((holder, place) => {
    const data = JSON.parse(holder.textContent);
    const make = (name, properties) => Object.assign(document.createElement(name), properties);
    const group = make("div", { className: "race" });
    group.setAttribute("role", "group");
    group.setAttribute("aria-label", "One training step, with the settings that you choose");
    const inputs = make("div", { className: "inputs" });
    const field = (name, label, input) => {
      Object.assign(input, { id: `race-${place}-${name}` });
      const output = make("span", {}); // no live region: the slider itself says its value
      const row = make("div", { className: "input" });
      row.append(make("label", { htmlFor: input.id, textContent: label }), input, output);
      inputs.append(row);
      return [input, output];
    };
    const [way] = field("way", "send gradients", make("select", {}));
    way.append(...data.ways.map((name) => new Option(name, name, name === data.start.way, name === data.start.way)));
    const slider = (name, label, steps, words) => {
      const input = make("input", { type: "range", min: 0, max: steps.length - 1, step: 1 });
      input.value = steps.indexOf(data.start[name]);
      return [name, steps, words, ...field(name, label, input)];
    };
    const upTo = (from, most, by) => Array.from({ length: (most - from) / by + 1 }, (_, i) => from + i * by);
    const sliders = [
      slider("cap_mb", "cap of a bucket", upTo(4, data.most_cap_mb, 4), (mb) => `${mb} MB`),
      slider("ranks", "ranks", upTo(2, data.most_ranks, 1), (k) => `${k}`),
      slider("latency_ms", "latency of a message", [0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1], (ms) => `${ms} ms`),
      slider("gb_per_s", "bandwidth", [0.5, 1, 2, 5, 10, 20, 50, 100], (gb) => `${gb} GB/s`),
    ];
    const shown = make("div", { className: "picture" });
    const words = make("p", { className: "words" });
    words.setAttribute("role", "status"); // a live region: the result is said when it changes
    const go = () => {
      const race = { way: way.value };
      sliders.forEach(([name, steps, unit, input, output]) => {
        race[name] = steps[input.value];
        output.textContent = unit(race[name]);
        input.setAttribute("aria-valuetext", output.textContent);
      });
      sliders[0][3].disabled = race.way !== "in buckets"; // only buckets have a cap
      const found = step(data, race);
      shown.replaceChildren(picture(data, race.ranks, found, place));
      words.textContent = say(race, found);
    };
    inputs.addEventListener("input", go);
    group.addEventListener("keydown", (event) => event.stopPropagation()); // the theme's keys lead to other pages
    group.append(inputs, shown, words);
    holder.before(group);
    holder.parentElement.querySelector("img").hidden = true;
    go();
  });
}
