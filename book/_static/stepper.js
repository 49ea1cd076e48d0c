// Steppers: a sum, round by round, in place of the still picture. Without scripts the still one stays.
{
  const [WIDTH, HEIGHT, RIGHT, DOWN, LEFT, TOP] = [58, 30, 14, 24, 32, 24]; // of a box, beside and below it, and around all

  const draw = (parent, name, attributes, text = "") => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    Object.entries(attributes).forEach(([key, value]) => element.setAttribute(key, value));
    element.textContent = text;
    parent.append(element);
    return element;
  };
  const text = (parent, x, y, words, more = {}) =>
    draw(parent, "text", { x, y, "text-anchor": "middle", "dominant-baseline": "central", ...more }, words);
  const left = (chunk) => LEFT + chunk * (WIDTH + RIGHT);
  const top = (rank) => TOP + rank * (HEIGHT + DOWN);

  // A box holds the numbers of the ranks that are in the sum, each at its own place; what has arrived has a thick border.
  const box = (svg, rank, chunk, ranks, colors, k, arrived) => {
    const [x, y, part] = [left(chunk), top(rank), WIDTH / k];
    ranks.forEach((held) => {
      draw(svg, "rect", { x: x + held * part, y, width: part, height: HEIGHT, fill: colors[held] });
      text(svg, x + (held + 0.5) * part, y + HEIGHT / 2, held, { fill: "white", "font-size": 12 });
    });
    draw(svg, "rect", { x, y, width: WIDTH, height: HEIGHT, fill: "none", stroke: arrived ? "black" : "#767676",
      "stroke-width": arrived ? 3 : 1, class: arrived ? "arrived" : "kept" });
  };

  // To the next row straight down; to any other one beside the boxes between.
  const arrow = (svg, source, target, chunk) => {
    const [x, from, to] = [left(chunk) + WIDTH / 2, top(source), top(target)];
    const end = left(chunk) + WIDTH;
    const path = target === source + 1 ? `M ${x} ${from + HEIGHT + 2} V ${to - 4}`
      : `M ${end + 2} ${from + HEIGHT / 2} h ${RIGHT - 6} V ${to + HEIGHT / 2} h ${10 - RIGHT}`;
    draw(svg, "path", { d: path, fill: "none", stroke: "black", "stroke-width": 1.5, "marker-end": "url(#stepper-head)",
      class: "message" });
  };

  const picture = ({ moves, holds }, colors) => {
    const k = holds.length;
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("viewBox", `0 0 ${left(k)} ${top(k) - DOWN + 6}`);
    svg.setAttribute("aria-hidden", "true"); // what it shows is said in words below it
    const head = draw(svg, "marker", { id: "stepper-head", viewBox: "0 0 6 6", refX: 4, refY: 3, markerWidth: 5, markerHeight: 5, orient: "auto" });
    draw(head, "path", { d: "M 0 0 L 6 3 L 0 6 z" });
    text(svg, LEFT / 2, 10, "rank", { "font-size": 12 });
    const arrived = new Set(moves.flatMap(([, target, chunks]) => chunks.map((chunk) => `${target} ${chunk}`)));
    holds.forEach((row, rank) => {
      text(svg, LEFT / 2, top(rank) + HEIGHT / 2, rank, { fill: colors[rank], "font-weight": "bold" });
      text(svg, left(rank) + WIDTH / 2, 10, `chunk ${rank}`, { "font-size": 12 });
      row.forEach((ranks, chunk) => box(svg, rank, chunk, ranks, colors, k, arrived.has(`${rank} ${chunk}`)));
    });
    moves.forEach(([source, target, chunks]) => chunks.forEach((chunk) => arrow(svg, source, target, chunk)));
    return svg;
  };

  document.querySelectorAll("script.stepper").forEach((holder, place) => {
    const { start, colors, runs } = JSON.parse(holder.textContent);
    const make = (name, properties) => Object.assign(document.createElement(name), properties);
    const group = make("div", { className: "stepper" });
    const bar = make("div", { className: "buttons" });
    const [back, next] = ["Back", "Next"].map((textContent) => make("button", { type: "button", textContent }));
    const label = make("label", { htmlFor: `stepper-${place}`, textContent: "devices" });
    const choice = make("select", { id: `stepper-${place}` });
    choice.append(...Object.keys(runs).map((k) => new Option(k, k, k === start, k === start)));
    const shown = make("div", { className: "picture" });
    const words = make("p", { className: "words" });
    words.setAttribute("role", "status"); // a live region: each round is said when it is shown
    group.setAttribute("role", "group");
    group.setAttribute("aria-label", "The sum, round by round");
    let round = 0;
    const go = (to) => {
      const rounds = runs[choice.value];
      round = Math.max(0, Math.min(rounds.length - 1, to));
      back.setAttribute("aria-disabled", round === 0); // and not disabled, which would take the focus away
      next.setAttribute("aria-disabled", round === rounds.length - 1);
      shown.replaceChildren(picture(rounds[round], colors));
      words.textContent = rounds[round].words;
    };
    back.addEventListener("click", () => go(round - 1));
    next.addEventListener("click", () => go(round + 1));
    choice.addEventListener("change", () => go(0));
    group.addEventListener("keydown", (event) => {
      const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!move || event.target === choice) return;
      event.stopPropagation(); // the theme's keys lead to other pages
      go(round + move);
    });
    bar.append(back, next, label, choice);
    group.append(bar, shown, words);
    holder.before(group);
    holder.parentElement.querySelector("img").hidden = true;
    go(0);
  });
}
