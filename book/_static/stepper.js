// Steppers: a sum, round by round, or a step, frame by frame, in place of the still picture, which stays without scripts.
{
  const [WIDTH, HEIGHT, RIGHT, DOWN, LEFT, TOP] = [58, 30, 14, 24, 32, 24]; // of a box, beside and below it, and around all

  const draw = window.drawSvg; // of svg.js
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

  const drawing = (width, height) => {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("aria-hidden", "true"); // what it shows is said in words below it
    return svg;
  };

  const round = ({ moves, holds }, colors) => {
    const k = holds.length;
    const svg = drawing(left(k), top(k) - DOWN + 6);
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

  // What is held is drawn at its place in the whole: square boxes are weights, round ones gradients, and dark ones stay.
  const [CELL, ROW, LABELS, HEAD, GAP, BARS] = [29, 21, 80, 42, 18, 56]; // widths and heights; BARS: of the longest bar

  const held = (svg, rank, x, y, [, kind, values, fresh], colors) => {
    const [all, k, dark, whole] = [values.split(" "), colors.length, kind === "part" || kind === "mean", kind === "whole"];
    const first = dark ? rank * all.length : 0;
    all.forEach((value, i) => {
      const color = colors[whole ? Math.floor(i * k / all.length) : rank];
      const far = whole && color !== colors[rank]; // has come from another rank
      const cell = draw(svg, "rect", { x: x + (first + i) * CELL + 1.5, y: y + 1.5, width: CELL - 3, height: ROW - 3,
        rx: kind === "part" || whole ? 0 : 8, fill: dark || whole ? color : "white", "fill-opacity": whole ? 0.2 : 1,
        stroke: color, "stroke-width": 1.5, class: `held ${kind}` });
      if (far) cell.setAttribute("stroke-dasharray", "3 2");
      text(svg, x + (first + i + 0.5) * CELL, y + ROW / 2, value, { fill: dark ? "white" : "black", "font-size": 12 });
    });
    if (fresh) draw(svg, "rect", { x: x + first * CELL, y, width: all.length * CELL, height: ROW, fill: "none",
      stroke: "black", "stroke-width": 2, class: "fresh" });
  };

  const frame = (now, { rows, colors, frames }) => {
    const columns = Math.max(...frames.flatMap(({ ranks }) => ranks.flatMap(({ boxes }) => boxes.map((box) => box[2].split(" ").length))));
    const start = (rank) => LABELS + rank * (columns * CELL + GAP);
    const right = start(colors.length) - GAP;
    const below = HEAD + (rows.length + 1) * ROW; // where the results end
    const base = below + 26 + BARS;
    const svg = drawing(right + 4, base + 6);
    const label = (y, words, more) => text(svg, LABELS - 6, y + ROW / 2, words, { "text-anchor": "end", "font-size": 12, ...more });
    text(svg, (right + 4) / 2, 9, now.moment, { "font-weight": "bold", "font-size": 13 });
    rows.forEach((words, row) => label(HEAD + row * ROW, words));
    now.ranks.forEach(({ boxes, found, sent }, rank) => {
      const x = start(rank);
      text(svg, x + columns * CELL / 2, HEAD - 12, `rank ${rank}${sent ? ` sends ${sent} B` : ""}`, { fill: colors[rank], "font-weight": "bold", "font-size": 12 });
      rows.forEach((_, row) => draw(svg, "rect", { x, y: HEAD + row * ROW + 1, width: columns * CELL, height: ROW - 2, fill: "#f3f3f3" }));
      boxes.forEach((box) => held(svg, rank, x, HEAD + box[0] * ROW, box, colors));
      found?.[1].split(" ").forEach((value, i) => text(svg, x + (i + 0.5) * CELL, below - ROW / 2, value, { "font-size": 12 }));
      if (found && !rank) label(below - ROW, found[0], { "font-style": "italic" });
    });
    // The memory over all frames: in each a bar per rank, from left to right.
    const [most, slot] = [Math.max(...frames.flatMap(({ ranks }) => ranks.map(({ bytes }) => bytes))), (right - LABELS) / frames.length];
    label(base - ROW, "bytes held", {});
    frames.forEach((each, i) => {
      const x = LABELS + i * slot;
      each.ranks.forEach(({ bytes }, rank) => {
        const [width, height] = [(slot - 3) / colors.length, BARS * bytes / most];
        draw(svg, "rect", { x: x + 1.5 + rank * width, y: base - height, width: width - 0.5, height, fill: colors[rank],
          "fill-opacity": each === now ? 1 : 0.45, class: "bar" });
      });
      if (each !== now) return;
      const all = [...new Set(each.ranks.map(({ bytes }) => bytes))].join(", ");
      const top = base - BARS * Math.max(...each.ranks.map(({ bytes }) => bytes)) / most;
      draw(svg, "rect", { x, y: top - 2, width: slot, height: base - top + 4, fill: "none", stroke: "black", "stroke-width": 2, class: "now" });
      text(svg, x + slot / 2, top - 11, all, { "font-weight": "bold", "font-size": 12 });
    });
    return svg;
  };

  const make = (name, properties) => Object.assign(document.createElement(name), properties);

  // Back and Next, by button or arrow key, through the steps that `steps` gives, each drawn by `picture` and said in words.
  const put = (holder, kind, name, steps, picture, choice) => {
    const group = make("div", { className: `stepper ${kind}` });
    const bar = make("div", { className: "buttons" });
    const [back, next] = ["Back", "Next"].map((textContent) => make("button", { type: "button", textContent }));
    const shown = make("div", { className: "picture" });
    const words = make("p", { className: "words" });
    words.setAttribute("role", "status"); // a live region: each step is said when it is shown
    group.setAttribute("role", "group");
    group.setAttribute("aria-label", name);
    let at = 0;
    const go = (to) => {
      const all = steps();
      at = Math.max(0, Math.min(all.length - 1, to));
      back.setAttribute("aria-disabled", at === 0); // and not disabled, which would take the focus away
      next.setAttribute("aria-disabled", at === all.length - 1);
      shown.replaceChildren(picture(all[at]));
      words.textContent = all[at].words;
    };
    back.addEventListener("click", () => go(at - 1));
    next.addEventListener("click", () => go(at + 1));
    choice?.addEventListener("change", () => go(0));
    group.addEventListener("keydown", (event) => {
      const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!move || event.target === choice) return;
      event.stopPropagation(); // the theme's keys lead to other pages
      go(at + move);
    });
    bar.append(back, next);
    if (choice) bar.append(make("label", { htmlFor: choice.id, textContent: "devices" }), choice);
    group.append(bar, shown, words);
    holder.before(group);
    holder.parentElement.querySelector("img").hidden = true;
    go(0);
  };

  document.querySelectorAll("script.stepper").forEach((holder, place) => {
    const data = JSON.parse(holder.textContent);
    if (data.frames) return put(holder, "frames", data.label, () => data.frames, (now) => frame(now, data));
    const choice = make("select", { id: `stepper-${place}` });
    choice.append(...Object.keys(data.runs).map((k) => new Option(k, k, k === data.start, k === data.start)));
    put(holder, "rounds", "The sum, round by round", () => data.runs[choice.value], (now) => round(now, data.colors), choice);
  });
}
