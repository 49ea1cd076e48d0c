// Predictions: below a question is a field, and the answer waits until the reader asks for it. The answer is the output of
// the cell that explorer_ext.py marks, with the first paragraph after it and a list there. Without scripts it is there.
document.querySelectorAll(".predict-question").forEach((question, place) => {
  const make = (name, properties) => Object.assign(document.createElement(name), properties);
  const after = (selector, e) => [...document.querySelectorAll(selector)]
    .filter((other) => e.compareDocumentPosition(other) & Node.DOCUMENT_POSITION_FOLLOWING);
  const number = [...question.classList].find((name) => name.startsWith("asked-")).replace("asked-", "");
  const cell = document.querySelector(`.cell.answers-${number}`);
  const [first, second] = after(".bd-article section > :not(section, h1, h2, h3, h4, span, .api-link)", cell);
  const answer = [...cell.querySelectorAll(".cell_output")];
  const [output] = answer;
  if (first?.matches("p:not(.predict-question)")) answer.push(first, ...(second?.matches("p + ul, p + ol") ? [second] : []));
  const hide = (hidden) => answer.forEach((e) => { e.hidden = hidden && "until-found"; }); // a search in the page shows it
  const form = make("form", { className: "predict", id: `predict-${place}` });
  const input = make("input", { id: `prediction-${place}`, autocomplete: "off" });
  const button = make("button", { className: "predict", textContent: inChinese ? "显示答案" : "Show the answer" });
  const words = make("p", { className: "predicted", tabIndex: -1 });
  const show = () => {
    hide(false);
    words.textContent = input.value.trim() ? `${inChinese ? "你的预测：" : "You predicted: "}${input.value.trim()}` : inChinese ? "答案：" : "The answer:";
    form.remove();
    button.replaceWith(words);
    answer.flatMap((e) => [...e.querySelectorAll("figure, pre")]) // what scrolls can be reached by keyboard
      .forEach((e) => { if (e.scrollWidth > e.clientWidth) e.tabIndex = 0; });
  };
  form.append(make("label", { htmlFor: input.id, textContent: inChinese ? "你的预测" : "Your prediction" }), input);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    show();
    words.focus();
  });
  answer.forEach((e) => e.addEventListener("beforematch", show, { once: true }));
  window.addEventListener("beforeprint", () => hide(false));
  button.setAttribute("form", form.id);
  question.after(form);
  output.before(button);
  hide(true);
});
