// Which run is broken? One pair of curves at a time; after the reader's answer, the verdict and the runs of all seeds.
// Her answers stay in this browser. Where it keeps nothing, they last as long as the page. Without scripts the still picture stays.
{
  const DASHES = ["none", "3 1.5"];
  const KEY = "d2lpar-which-run";
  const [WIDTH, LEFT, BOTTOM, TOP, MOST] = [300, 26, 22, 8, 2.5]; // MOST: the highest loss that is drawn

  const kept = {
    read: () => { try { return JSON.parse(localStorage.getItem(KEY)); } catch { return null; } },
    write: (answers) => { try { localStorage.setItem(KEY, JSON.stringify(answers)); } catch { /* it lasts as long as the page */ } },
    forget: () => { try { localStorage.removeItem(KEY); } catch { /* nothing was kept */ } },
  };

  const draw = window.drawSvg; // of svg.js

  // Axes, and lines of one or of several runs: {values, color, dashes, thin}.
  const panel = (lines, every, height, words) => {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("viewBox", `0 0 ${WIDTH} ${height}`);
    svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", words);
    const last = lines[0].values.length * every;
    const x = (step) => LEFT + (step / last) * (WIDTH - LEFT - 14);
    const y = (loss) => TOP + (1 - Math.min(loss, MOST) / MOST) * (height - TOP - BOTTOM);
    const text = (words, more) => draw(svg, "text", { "font-size": 12, fill: "#333", ...more }, words);
    for (const loss of [0, 1, 2]) {
      draw(svg, "line", { x1: LEFT, x2: x(last), y1: y(loss), y2: y(loss), stroke: loss ? "#ddd" : "#767676" });
      text(loss, { x: LEFT - 6, y: y(loss), "text-anchor": "end", "dominant-baseline": "central" });
    }
    for (const step of [0, last / 2, last]) text(step, { x: x(step), y: height - BOTTOM + 15, "text-anchor": "middle" });
    text("step", { x: x(last / 4), y: height - BOTTOM + 15, "text-anchor": "middle" });
    text("loss", { x: LEFT + 6, y: height - BOTTOM - 8 });
    lines.forEach(({ values, color, dashes, thin }) => draw(svg, "polyline", {
      points: values.map((loss, i) => `${x((i + 1) * every).toFixed(1)},${y(loss).toFixed(1)}`).join(" "),
      fill: "none", stroke: color, "stroke-width": thin ? 0.8 : 1.6, "stroke-linejoin": "round",
      "stroke-dasharray": dashes }));
    return svg;
  };

  document.querySelectorAll("script.which-run").forEach((holder) => {
    const { version, every, colors, pairs } = JSON.parse(holder.textContent);
    pairs.forEach((pair) => { pair.runs = pair.runs.map((runs) => runs.map((run) => run.split(" ").map(Number))); });
    const make = (name, properties, ...children) => {
      const element = Object.assign(document.createElement(name), properties);
      element.append(...children);
      return element;
    };
    const button = (textContent, act) => {
      const made = make("button", { type: "button", textContent });
      made.addEventListener("click", () => made.getAttribute("aria-disabled") === "true" || act());
      return made;
    };
    const stored = kept.read();
    let answers = Object.fromEntries(Object.entries(stored?.version === version && stored.answers || {}) // nothing else is counted
      .filter(([i, side]) => i in pairs && ["A", "B"].includes(side)));
    let now = 0;

    const shown = make("div", { className: "picture" });
    const words = make("div", { className: "words" });
    words.setAttribute("role", "status"); // a live region: the verdict is said when it is shown
    const place = make("span", { className: "place" });
    const score = make("span", { className: "score" });
    const votes = ["A", "B"].map((side) => button(`${side} is broken`, () => {
      answers = { ...answers, [now]: side };
      kept.write({ version, answers });
      show();
    }));
    const go = (by) => () => { now += by; show(); };
    const [back, next] = [button("Back", go(-1)), button("Next pair", go(1))];
    const forget = button("Forget my answers", () => {
      answers = {};
      now = 0;
      kept.forget();
      show();
    });
    const disable = (control, off) => control.setAttribute("aria-disabled", off); // not disabled, which would take the focus away

    const show = () => {
      const pair = pairs[now];
      const answer = answers[now];
      const given = Object.keys(answers);
      const right = given.filter((i) => answers[i] === pairs[i].broken).length;
      place.textContent = `Pair ${now + 1} of ${pairs.length}`;
      score.textContent = given.length ? `${right} of ${given.length} right` : "No answer yet";
      disable(back, now === 0);
      disable(next, now === pairs.length - 1);
      disable(forget, !given.length);
      votes.forEach((vote, i) => {
        disable(vote, Boolean(answer));
        vote.classList.toggle("chosen", answer === "AB"[i]);
      });
      words.replaceChildren();
      if (!answer) {
        shown.replaceChildren(...pair.runs.map((runs, i) => make("figure", {},
          make("figcaption", { textContent: `Run ${"AB"[i]}` }),
          panel([{ values: runs[0], color: colors[i], dashes: "none" }], every, 190, pair.words[i]))));
        return;
      }
      const whole = pair.broken === "A" ? "B" : "A";
      const said = `With all ${pair.runs[0].length} seeds, the right runs end with a loss of ${pair.ends.right}, `
        + `and the broken ones with ${pair.ends.wrong}.`;
      const key = ["A", "B"].map((side, i) => {
        const name = make("span", { className: "key" });
        const line = draw(name, "svg", { viewBox: "0 0 24 8", "aria-hidden": "true" });
        draw(line, "line", { x1: 0, x2: 24, y1: 4, y2: 4, stroke: colors[i], "stroke-width": 2, "stroke-dasharray": DASHES[i] });
        name.append(`${side}, ${side === whole ? "right" : "broken"}`);
        return name;
      });
      shown.replaceChildren(make("figure", { className: "all-seeds" }, make("figcaption", {}, ...key),
        panel(pair.runs.flatMap((runs, i) => runs.map((values) => ({ values, color: colors[i], dashes: DASHES[i], thin: true }))),
          every, 220, said)));
      words.append(
        make("p", {}, make("strong", { textContent: answer === pair.broken ? "Right. " : "No. " }), `Run ${pair.broken} is broken. ${pair.mistake}`),
        make("p", {}, make("code", { textContent: "watch" }), " reports: ", make("strong", { textContent: `FAULT, ${pair.fault}` }), `: ${pair.seen}.`),
        make("p", { textContent: `${said} The difference at the end is ${pair.differs ? "" : "not "}larger than the spread of the seeds.` }));
    };

    const group = make("div", { className: "which-run" },
      make("div", { className: "buttons" }, place, back, next), shown,
      make("div", { className: "buttons votes" }, ...votes), words,
      make("div", { className: "buttons" }, score, forget));
    group.setAttribute("role", "group");
    group.setAttribute("aria-label", "Which run is broken?");
    holder.before(group);
    holder.parentElement.querySelector("img").classList.add("still"); // which paper shows
    show();
  });
}
