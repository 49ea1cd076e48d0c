// Predictions: what answers a question comes when the reader has written down an answer. Without scripts it is there.
document.querySelectorAll(".cell.tag_predict").forEach((cell, place) => {
  const answer = [...cell.querySelectorAll(".cell_output")];
  for (let e = cell.nextElementSibling; e && !e.matches(".cell, section"); e = e.nextElementSibling) answer.push(e);
  const hide = (hidden) => answer.forEach((e) => { e.hidden = hidden && "until-found"; }); // a search in the page shows it
  const make = (name, properties) => Object.assign(document.createElement(name), properties);
  const form = make("form", { className: "predict" });
  const input = make("input", { id: `predict-${place}`, autocomplete: "off" });
  const words = make("p", { className: "predicted", tabIndex: -1 });
  const show = () => {
    hide(false);
    words.textContent = input.value.trim() ? `You predicted: ${input.value.trim()}` : "You made no prediction.";
    form.replaceWith(words);
    answer.flatMap((e) => [...e.querySelectorAll("figure, pre")]) // what scrolls can be reached by keyboard
      .forEach((e) => { if (e.scrollWidth > e.clientWidth) e.tabIndex = 0; });
  };
  form.append(make("label", { htmlFor: input.id, textContent: "Your prediction" }), input,
    make("button", { textContent: "Show the answer" }));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    show();
    words.focus();
  });
  answer.forEach((e) => e.addEventListener("beforematch", show, { once: true }));
  window.addEventListener("beforeprint", () => hide(false));
  cell.querySelector(".cell_output").before(form);
  hide(true);
});
