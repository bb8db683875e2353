// SPDX-License-Identifier: Apache-2.0
// Moves bounds of rules on the measures of a sample, and searches and sorts samples of texts.
// The page is whole without it. It makes all elements that need it, and asks no network.
"use strict";
(() => {
  const STEPS = 1000; // of a slider
  const Z = 1.96; // 95 % of a normal distribution
  const NO_GROUP = 255;

  function make(tag, attributes = {}, ...children) {
    const element = Object.assign(document.createElement(tag), attributes);
    element.append(...children);
    return element;
  }

  const count = (number) => Math.round(number).toLocaleString("en");
  const percent = (share) =>
    (share > 0 && share < 0.0001 ? "<0.01%" : `${(100 * share).toFixed(share && share < 0.01 ? 2 : 1)}%`);

  // Numbers of `packed` in measured_sample.py: 7 bits per byte, the lowest first.
  function unpack(text) {
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const values = [];
    let value = 0, scale = 1;
    for (const byte of bytes) {
      value += (byte & 127) * scale;
      scale *= 128;
      if (byte < 128) {
        values.push(value);
        value = 0;
        scale = 1;
      }
    }
    return Float64Array.from(values);
  }

  // A filter: its rules, and the documents of the sample. The first `first` documents have texts on the page, and are
  // not counted.
  class Filter {
    constructor(entry) {
      Object.assign(this, entry);
      this.first = this.shown.length;
      this.rows = this.first + this.drawn;
      const numbers = unpack(this.data);
      const column = (place) => numbers.subarray(place * this.rows, (place + 1) * this.rows);
      const measures = this.measures.map((_, place) => column(place));
      const groups = this.groups.map((_, place) => column(measures.length + place));
      this.members = groups;
      this.broken = Int16Array.from(column(measures.length + groups.length)); // rules that a document breaks
      for (const rule of this.rules) this.load(rule, measures, groups);
      this.before = this.broken.map((broken) => (broken ? 1 : 0));
    }

    load(rule, measures, groups) {
      const all = Int32Array.from({ length: this.rows }, (_, row) => row);
      rule.docs = rule.group === undefined ? all : all.filter((row) => groups[rule.column][row] === rule.group);
      const [above, below] = rule.measures.map((place) => measures[place]);
      rule.values = Float64Array.from(rule.docs, (row) => (below ? above[row] / Math.max(below[row], 1) : above[row]));
      rule.breaks = new Uint8Array(rule.docs.length);
      rule.low = rule.first_low = rule.min ?? -Infinity;
      rule.high = rule.first_high = rule.max ?? Infinity;
      this.judge(rule);
    }

    judge(rule) {
      const { docs, values, breaks, low, high } = rule;
      for (let place = 0; place < docs.length; place++) {
        const now = values[place] < low || values[place] > high ? 1 : 0;
        this.broken[docs[place]] += now - breaks[place];
        breaks[place] = now;
      }
    }

    // Documents of the sample in a group, or of all, that the filter keeps, and those that enter and leave.
    tally(column, group) {
      const found = { rows: 0, kept: 0, enter: 0, leave: 0 };
      for (let row = this.first; row < this.rows; row++) {
        if (group !== undefined && this.members[column][row] !== group) continue;
        const gone = this.broken[row] > 0;
        found.rows++;
        found.kept += !gone;
        found.enter += !gone && this.before[row];
        found.leave += gone && !this.before[row];
      }
      return found;
    }

    // Documents of the sample beyond the bounds of a rule, and those that break no other rule.
    beyond(rule) {
      const { docs, breaks } = rule;
      let rows = 0, beyond = 0, only = 0;
      for (let place = 0; place < docs.length; place++) {
        if (docs[place] < this.first) continue;
        rows++;
        beyond += breaks[place];
        only += breaks[place] && this.broken[docs[place]] === 1 ? 1 : 0;
      }
      return { rows, beyond, only };
    }

    // Whether the sample has all documents of a group, or of all.
    get whole() {
      return this.drawn === this.documents;
    }

    // Half of the 95 % interval (Wilson) of a share of the sample.
    error(found, rows) {
      if (this.whole || !rows) return 0;
      const share = found / rows, z2 = (Z * Z) / rows;
      const rest = Math.sqrt(1 - this.drawn / this.documents);
      return (rest * Z * Math.sqrt((share * (1 - share)) / rows + z2 / (4 * rows))) / (1 + z2);
    }

    // The share kept of so many documents, of which `kept` were counted: the sample tells the difference.
    share(found, documents, kept) {
      const rows = Math.max(found.rows, 1), change = (found.enter - found.leave) / rows;
      const moved = found.enter + found.leave;
      const spread = ((moved + 1) / rows - change * change) / rows;
      const error = this.whole ? 0 : Z * Math.sqrt(spread * (1 - this.drawn / this.documents));
      return { share: kept / documents + change, error, documents };
    }

    get moved() {
      return this.rules.filter((rule) => rule.low !== rule.first_low || rule.high !== rule.first_high);
    }
  }

  const around = (error) => (error ? ` ± ${(100 * error).toFixed(error < 0.001 ? 2 : 1)}` : "");
  const plain = /^[\w@%+=:,./-]+$/;
  const quoted = (text) => (plain.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

  function settings(rules) {
    const found = [];
    for (const rule of rules) {
      if (rule.low !== rule.first_low && rule.path) found.push(`${rule.path}.min=${rule.low}`);
      if (rule.high !== rule.first_high && rule.path) found.push(`${rule.path}.max=${rule.high}`);
    }
    return found.map((setting) => `--set ${quoted(setting)}`).join(" ");
  }

  // Places of values in a histogram, as `Counts.place` in charts.py has them: 0 is its left edge, 1 its right one.
  class Scale {
    constructor(text) {
      [this.first, this.bins, this.share] = text.split(" ").map(Number);
    }

    start(bin) {
      if (this.share) return bin / 100;
      const code = bin - 1 + 4 * (1023 - 30);
      return bin <= 0 ? 0 : 2 ** ((code >> 2) - 1023) * (1 + (code & 3) / 4);
    }

    place(value) {
      for (let bin = 0; bin < this.bins; bin++) {
        const low = this.start(this.first + bin), high = this.start(this.first + bin + 1);
        if (value < high) return (bin + Math.max((value - low) / (high - low), 0)) / this.bins;
      }
      return 1;
    }

    value(place) {
      const bin = Math.min(Math.floor(place * this.bins), this.bins - 1);
      const low = this.start(this.first + bin), high = this.start(this.first + bin + 1);
      return low + (high - low) * (place * this.bins - bin);
    }
  }

  // The nearest bound that the recipe takes: not one that keeps or removes all documents.
  function within(rule, side, value) {
    const highest = rule.highest ?? Infinity, least = rule.measures.length > 1 ? 0.001 : 1;
    if (side === "low") return Math.max(Math.min(value, rule.high, highest), least);
    return Math.max(Math.min(value, highest - least), rule.low, 0);
  }

  // A value of a slider, with few digits.
  function short(rule, value) {
    if (rule.highest) return Number(value.toFixed(3));
    const three = Number(value.toPrecision(3));
    return rule.measures.length > 1 ? three : Math.round(three);
  }

  // The drawing of a rule: bars beyond the bounds below, and a window on the same bars within them above.
  class Drawing {
    constructor(chart, rule) {
      this.chart = chart;
      this.rule = rule;
      this.scale = new Scale(chart.dataset.bins);
      const { width, height } = chart.viewBox.baseVal;
      Object.assign(this, { width, height });
      this.window = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      const bars = [...chart.querySelectorAll(".kept, .removed")];
      for (const bar of bars) {
        const copy = bar.cloneNode(true);
        copy.setAttribute("class", "kept");
        bar.setAttribute("class", "removed");
        this.window.append(copy);
      }
      if (bars.length) bars.at(-1).after(this.window);
      const [lines, texts] = [chart.querySelectorAll(".bound"), chart.querySelectorAll(".mark")];
      const sides = ["low", "high"].filter((side) => Number.isFinite(rule[side]));
      this.marks = sides.map((side, place) => [side, lines[place], texts[place]]);
      this.draw();
    }

    draw() {
      const [left, right] = [this.rule.low, this.rule.high].map((bound) =>
        bound === -Infinity ? 0 : this.width * this.scale.place(bound));
      const span = Math.max(right - left, 0);
      this.window.setAttribute("x", left);
      this.window.setAttribute("width", span);
      this.window.setAttribute("height", this.height);
      this.window.setAttribute("viewBox", `${left} 0 ${span || 1} ${this.height}`);
      for (const [side, line, text] of this.marks) {
        const x = this.width * this.scale.place(this.rule[side]);
        line.setAttribute("x1", x);
        line.setAttribute("x2", x);
        text.setAttribute("x", x);
        text.setAttribute("text-anchor", x < this.width / 8 ? "start" : x > (this.width * 7) / 8 ? "end" : "middle");
        text.textContent = this.rule[side].toLocaleString("en", { maximumSignificantDigits: 6 });
      }
    }
  }

  // The sliders of a card, and what its rule removes.
  class Card {
    constructor(element, filter, changed) {
      this.filter = filter;
      this.rule = filter.rules[Number(element.dataset.rule)];
      this.drawing = new Drawing(element.querySelector("svg"), this.rule);
      this.line = make("p", { className: "quiet" });
      this.inputs = ["low", "high"].filter((side) => Number.isFinite(this.rule[side]))
        .map((side) => this.input(side, changed));
      element.append(...this.inputs.map(({ box }) => box), this.line);
      this.draw();
    }

    input(side, changed) {
      const { rule } = this, name = side === "low" ? "at least" : "at most";
      const label = `${rule.reason}: ${name}`;
      const slider = make("input", { type: "range", min: 0, max: STEPS, ariaLabel: label });
      const number = make("input", { type: "number", step: "any", ariaLabel: `${label}, as a number` });
      const set = (value) => {
        rule[side] = value;
        this.filter.judge(rule);
        this.draw();
        changed();
      };
      const start = Math.round(STEPS * this.drawing.scale.place(rule[side]));
      slider.addEventListener("input", () => set(Number(slider.value) === start ? rule[`first_${side}`]
        : within(rule, side, short(rule, this.drawing.scale.value(Number(slider.value) / STEPS)))));
      number.addEventListener("change", () => {
        if (number.value !== "") set(within(rule, side, Number(number.value)));
      });
      const box = make("div", { className: "slide" }, slider, make("label", {}, `${name} `, number));
      return { box, slider, number, side };
    }

    draw() {
      const { rule } = this;
      this.drawing.draw();
      for (const { slider, number, side } of this.inputs) {
        const place = Math.round(STEPS * this.drawing.scale.place(rule[side]));
        if (document.activeElement !== slider) slider.value = place;
        number.value = rule[side];
      }
    }

    show() {
      const { filter, rule } = this;
      const found = filter.beyond(rule), rows = Math.max(found.rows, 1);
      const [beyond, only] = [found.beyond, found.only].map((part) => (filter.whole
        ? `${count(part)} (${percent(part / rows)})` : percent(part / rows) + around(filter.error(part, found.rows))));
      this.line.textContent = filter.moved.length ? `moved: ${beyond} beyond it, ${only} only by it` : "";
    }
  }

  // The result of a filter: what its moved bounds keep, and the settings that move them.
  class Panel {
    constructor(element, filter) {
      this.filter = filter;
      this.cards = [...element.querySelectorAll("[data-rule]")].map((card) =>
        new Card(card, filter, () => this.show()));
      this.text = make("div", { ariaLive: "polite" });
      this.code = make("code");
      this.copy = make("button", { type: "button" }, "Copy settings");
      this.copy.addEventListener("click", () => this.copied());
      const reset = make("button", { type: "button" }, "Reset");
      reset.addEventListener("click", () => this.reset());
      this.line = make("pre", {}, this.code);
      this.box = make("div", { className: "panel", hidden: true }, this.text, this.line, this.copy, " ", reset);
      element.append(this.box);
      this.texts = filter.shown.map((name) => document.querySelector(`[data-sample="${name}"]`));
      this.show();
    }

    async copied() {
      try {
        await navigator.clipboard.writeText(this.code.textContent);
      } catch { // an old browser, or a page that may not
        getSelection().selectAllChildren(this.code);
        document.execCommand("copy");
      }
      this.copy.textContent = "Copied";
      setTimeout(() => { this.copy.textContent = "Copy settings"; }, 1500);
    }

    reset() {
      for (const rule of this.filter.rules) {
        rule.low = rule.first_low;
        rule.high = rule.first_high;
        this.filter.judge(rule);
      }
      document.activeElement?.blur();
      for (const card of this.cards) card.draw();
      this.show();
    }

    show() {
      const { filter } = this, moved = filter.moved;
      for (const card of this.cards) card.show();
      const [entering, leaving] = this.mark(moved.length > 0);
      this.box.hidden = !moved.length;
      const lines = [this.kept("the documents", filter.tally(), filter.documents, filter.removed)];
      const groups = new Map(moved.filter((rule) => rule.group !== undefined)
        .map((rule) => [`${rule.column} ${rule.group}`, rule]));
      for (const { column, group } of groups.values()) {
        const [documents, removed] = filter.sizes[column][group];
        const name = `the moved group ${filter.groups[column][group]}`;
        lines.push(this.kept(name, filter.tally(column, group), documents, removed));
      }
      const basis = filter.whole ? `all ${count(filter.documents)} documents that reached ${filter.stage}`
        : `a sample of ${count(filter.drawn)} of ${count(filter.documents)} documents that reached ${filter.stage}; `
          + "± is the 95 % interval, in percentage points";
      const texts = `Of the samples below, ${entering} would enter and ${leaving} would leave.`;
      lines.push(make("p", { className: "quiet" }, `Measured on ${basis}. ${texts}`));
      const fixed = moved.filter((rule) => !rule.path).map((rule) => rule.reason);
      if (fixed.length) lines.push(make("p", { className: "quiet" }, `Change in the recipe: ${fixed.join(", ")}`));
      this.text.replaceChildren(...lines);
      this.code.textContent = settings(moved);
      this.line.hidden = this.copy.hidden = !this.code.textContent;
    }

    kept(name, found, documents, removed) {
      const { share, error } = this.filter.share(found, documents, documents - removed);
      const about = this.filter.whole ? "" : "about ";
      const before = percent((documents - removed) / documents);
      return make("p", {}, "With the moved bounds, ", make("b", {}, `${percent(share)}${around(error)}`), ` of ${name} are kept `
        + `after this filter; the run kept ${before}. All rules then remove ${about}${count((1 - share) * documents)} of ${count(documents)} `
        + `documents; the run removed ${count(removed)}.`);
    }

    // Mark the samples on the page that would enter or leave; return how many.
    mark(moved) {
      const changes = [0, 0];
      this.texts.forEach((element, row) => {
        const gone = this.filter.broken[row] > 0, was = this.filter.before[row] > 0;
        const change = moved && gone !== was;
        if (change) changes[gone ? 1 : 0]++;
        if (!element) return;
        const name = `badge ${this.filter.stage}`;
        let badge = [...element.children].find((child) => child.className === "badge" && child.title === name);
        if (change && !badge) element.prepend(badge = make("span", { className: "badge", title: name }));
        if (badge && !change) badge.remove();
        if (badge && change) badge.textContent = `would ${gone ? "be removed by" : "pass"} ${this.filter.stage}`;
      });
      return changes;
    }
  }

  // Search and order of the samples of texts.
  function addTools(section) {
    const samples = [...section.querySelectorAll("[data-sample]")].map((element) => ({
      element, home: element.parentNode, fold: element.closest("details"), ...element.dataset,
    }));
    if (!samples.length) return;
    const folds = [...new Set(samples.map(({ fold }) => fold))];
    const opened = folds.map((fold) => fold.open);
    const search = make("input", { type: "search", placeholder: "Search the samples", ariaLabel: "Search the samples" });
    const order = make("select", { ariaLabel: "Sort by" },
      ...["reason", "input", "value"].map((name) => make("option", { value: name }, `by ${name}`)));
    const number = make("span", { className: "quiet" });
    const flat = make("div", { className: "samples" });
    const compare = {
      input: (a, b) => a.input.localeCompare(b.input),
      value: (a, b) => Number(b.value ?? -Infinity) - Number(a.value ?? -Infinity),
    };
    for (const sample of samples) {
      sample.text = sample.element.textContent.toLowerCase();
      sample.label = make("div", { className: "quiet" }, sample.fold.querySelector("summary").firstChild.textContent.trim());
    }

    function arrange() {
      const asked = search.value.trim().toLowerCase();
      const chosen = samples.filter((sample) => sample.text.includes(asked));
      const isFlat = order.value in compare;
      for (const sample of samples) {
        sample.element.hidden = !chosen.includes(sample);
        sample.label.remove();
        sample.home.append(sample.element);
      }
      folds.forEach((fold, place) => {
        fold.hidden = isFlat || !chosen.some((sample) => sample.fold === fold);
        fold.open = asked ? !fold.hidden : opened[place];
      });
      if (isFlat) {
        for (const { element, label } of [...chosen].sort(compare[order.value])) {
          element.prepend(label);
          flat.append(element);
        }
      }
      number.textContent = asked ? `${count(chosen.length)} of ${count(samples.length)} samples` : "";
    }

    search.addEventListener("input", arrange);
    order.addEventListener("change", arrange);
    const tools = make("div", { className: "tools" }, search, make("label", {}, "Sort ", order), number);
    section.querySelector("h2").after(tools, flat);
  }

  const filters = JSON.parse(document.getElementById("measured").textContent).map((entry) => new Filter(entry));
  const panels = [...document.querySelectorAll("[data-filter]")].map((element) =>
    new Panel(element, filters[Number(element.dataset.filter)]));
  const section = document.getElementById("samples");
  if (section) addTools(section);
  window.curation = { filters, panels, settings, within }; // for tests and the console
})();
