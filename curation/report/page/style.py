# SPDX-License-Identifier: Apache-2.0
"""The style sheet of the page: light and dark, from 390 to 1,600 pixels, and for print.

Kept documents are blue and removed ones orange, which people with red-green blindness tell apart. Clusters differ by
their marks as well as by their colours.
"""

STYLE = """
:root { color-scheme: light dark; --ground: #fff; --panel: #f4f5f7; --ink: #16181d; --quiet: #565d6b; --line: #d9dde4;
  --edge: #7d8594; --kept: #2a6db5; --removed: #c2410c; --accent: #1f58a0; --pale: #b9cfe8; --mark: #ffdf80;
  --markink: #16181d; --c0: #2a6db5; --c1: #c2410c; --c2: #00765a; --c3: #8b3fa0; --c4: #866000; --c5: #00758f;
  --c6: #b8306f; --c7: #16181d; --c8: #7d8594 }
@media (prefers-color-scheme: dark) { :root { --ground: #14161a; --panel: #1e2127; --ink: #eceef2; --quiet: #a8b0be;
  --line: #363b45; --edge: #858d9b; --kept: #5b9fe6; --removed: #f58a4b; --accent: #8fbcf5; --pale: #34506f;
  --mark: #6e5600; --markink: #fff3cf; --c0: #5b9fe6; --c1: #f58a4b; --c2: #35c493; --c3: #c993e6; --c4: #dcb540;
  --c5: #4cc3de; --c6: #f07fb0; --c7: #eceef2; --c8: #858d9b } }
* { box-sizing: border-box }
html { scroll-behavior: smooth; -webkit-text-size-adjust: 100% }
body { margin: 0 auto; max-width: 76rem; padding: 2rem 1.25rem 4rem; background: var(--ground); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif; overflow-wrap: anywhere }
h1 { font-size: 1.75rem; line-height: 1.2; margin: 0 } h2 { font-size: 1.25rem; margin: 3rem 0 .5rem }
h3 { font-size: 1rem; margin: 1.5rem 0 .4rem } p, figure { margin: .25rem 0 }
a { color: var(--accent) } .quiet { color: var(--quiet) }
nav { display: flex; flex-wrap: wrap; gap: .25rem 1.1rem; margin: .75rem 0 0; font-size: .95rem }
.tiles { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fit, minmax(13rem, 1fr)); margin: 1.5rem 0 }
.tile { background: var(--panel); border-radius: .6rem; padding: 1rem 1.15rem } .tile b { display: block;
  font-size: 2rem; line-height: 1.2; font-variant-numeric: tabular-nums }
.step { display: grid; grid-template-columns: minmax(6rem, 17rem) 1fr 9.5rem; gap: 0 1rem; align-items: center }
.step > * { min-width: 0 } .step .name { font-weight: 600 }
.step .count { text-align: right; font-variant-numeric: tabular-nums }
.bar { height: 1.6rem; background: var(--kept); border-radius: .15rem; min-width: 1px }
.flow { display: block; width: 100%; height: 1.1rem } .flow polygon { fill: var(--pale) }
.reason { font-size: .9rem; color: var(--quiet) } .reason .name { font-weight: 400 }
.reason .bar { height: .6rem; background: var(--removed) } .time .bar { background: var(--quiet); height: .8rem }
.cards { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fill, minmax(min(19rem, 100%), 1fr)) }
.card { background: var(--panel); border-radius: .6rem; padding: .9rem 1rem; min-width: 0 }
.card h3 { margin: 0 } .card p { font-size: .88rem; font-variant-numeric: tabular-nums }
.chart { display: block; width: 100%; height: auto; margin: .4rem 0 }
.chart text { fill: var(--quiet); font-size: 11px }
.chart .kept { fill: var(--kept) } .chart .removed { fill: var(--removed) } .chart .pale { fill: var(--pale) }
.chart .axis { stroke: var(--quiet); fill: none; stroke-width: .8 }
.chart .bound { stroke: var(--ink); stroke-width: 1.5 }
.chart text.mark { fill: var(--ink) }
.map { background: var(--panel); border-radius: .6rem; max-width: 56rem } .map polygon { stroke: var(--panel);
  stroke-width: .7 } .c0 { fill: var(--c0) }
.c1 { fill: var(--c1) } .c2 { fill: var(--c2) } .c3 { fill: var(--c3) } .c4 { fill: var(--c4) } .c5 { fill: var(--c5) }
.c6 { fill: var(--c6) } .c7 { fill: var(--c7) } .c8 { fill: var(--c8) }
.sign { width: .9em; height: .9em; vertical-align: -.08em }
.words td:last-child, .words th:last-child { text-align: left; white-space: normal; width: 100% }
.words td:first-child, .words th:first-child { min-width: 5rem }
.key { display: inline-block; width: .8em; height: .8em; border-radius: .15em; margin: 0 .35em 0 .1em }
.key.kept { background: var(--kept) } .key.removed { background: var(--removed) } .key.pale { background: var(--pale) }
details { margin: .35rem 0 } summary { cursor: pointer; color: var(--accent) } summary .quiet { font-size: .9rem }
.sample { background: var(--panel); border-radius: .6rem; padding: .75rem 1rem; margin: .6rem 0;
  min-width: 0 } .samples .sample { margin: 0 }
.sample .where { font-size: .85rem; color: var(--quiet) }
.text { white-space: pre-wrap; margin: .4rem 0 0; font-size: .93rem; line-height: 1.45; max-height: 15rem;
  overflow-y: auto } .samples { display: grid; gap: .75rem; margin: .6rem 0 1rem;
  grid-template-columns: repeat(auto-fill, minmax(min(28rem, 100%), 1fr)) }
mark { background: var(--mark); color: var(--markink); border-radius: .15em; padding: 0 .05em }
.pair { display: grid; gap: .5rem 1.5rem; grid-template-columns: 1fr 1fr } .pair > div { min-width: 0 }
.scroll { overflow-x: auto } table { border-collapse: collapse; width: 100%; font-size: .93rem }
th, td { text-align: right; padding: .3rem .6rem; border-bottom: 1px solid var(--line); white-space: nowrap;
  font-variant-numeric: tabular-nums } th { font-weight: 600; color: var(--quiet) }
th:first-child, td:first-child { text-align: left; white-space: normal; min-width: 8rem; padding-left: 0 }
.warning { border-left: .3rem solid var(--removed); background: var(--panel); padding: .5rem .9rem; margin: .5rem 0 }
pre { background: var(--panel); border-radius: .6rem; padding: 1rem; overflow-x: auto; font-size: .85rem;
  margin: .5rem 0 } code { font-size: .88em }
dl { display: grid; grid-template-columns: minmax(7rem, 12rem) 1fr; gap: .35rem 1rem; margin: 0 0 1rem }
dt { color: var(--quiet) } dd { margin: 0; min-width: 0 }
.slide input { accent-color: var(--accent) } .slide [type=range] { display: block; width: 100%; margin: .3rem 0 .1rem }
.slide [type=number] { width: 7rem } .slide label { font-size: .88rem }
input, select, button { font: inherit; font-size: .88rem; color: var(--ink); background: var(--ground);
  border: 1px solid var(--edge); border-radius: .35rem; padding: .15rem .5rem } [type=range] { border: 0; padding: 0 }
button { cursor: pointer; color: var(--accent) }
.panel { position: sticky; bottom: .6rem; margin: 1rem 0; padding: .8rem 1rem; border-radius: .6rem;
  background: var(--ground); border: 2px solid var(--accent) } .panel pre { margin: .5rem 0; white-space: pre-wrap;
  padding: .5rem .75rem; max-height: 6rem; overflow-y: auto }
.badge { float: right; margin-left: .5rem; padding: 0 .5rem; border-radius: .35rem; font-size: .82rem;
  background: var(--mark); color: var(--markink) } [hidden] { display: none !important }
.tools { display: flex; flex-wrap: wrap; gap: .5rem 1rem; align-items: center; margin: .6rem 0 }
.tools [type=search] { flex: 1 1 14rem; max-width: 26rem; font-size: 1rem; padding: .3rem .6rem }
@media (max-width: 44rem) { .step { grid-template-columns: 1fr auto } .step .name, .step .count { grid-row: 1 }
  .step .middle { grid-column: 1 / -1; grid-row: 2 } .step { margin-top: .35rem }
  .step .count br { display: none } .gap { display: none } body { padding: 1.25rem .9rem 3rem }
  .pair { grid-template-columns: 1fr } dl { grid-template-columns: 1fr; gap: 0 } dd { margin-bottom: .6rem }
  .tiles { gap: .6rem } .tile b { font-size: 1.6rem } h2 { margin-top: 2.25rem } }
@media print { body { max-width: none; font-size: 11px; padding: 0 } nav, .slide, .panel, .tools { display: none }
  .tile, .card, .sample, pre, .warning { border: 1px solid #999; break-inside: avoid }
  .bar, .key, mark, polygon, rect { print-color-adjust: exact; -webkit-print-color-adjust: exact }
  h2 { break-after: avoid } .text { max-height: none } }
"""
