"""The one style sheet of a search's report. Shades say nothing that a number beside them does not say; text has a contrast of 4.5 and more."""

STYLE = """
:root { color-scheme: light; }
body { margin: 0; background: #fff; color: #1c2330; font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 1.5rem; }
h1 { font-size: 1.6rem; margin: 0 0 .8rem; } h2 { font-size: 1.2rem; margin: 2.2rem 0 .6rem; border-bottom: 1px solid #d5dae3; }
h3 { font-size: 1rem; margin: 1.2rem 0 .3rem; overflow-wrap: anywhere; }
small { color: #59627a; } code { background: #eef1f6; padding: .1rem .35rem; border-radius: 3px; }
.verdict { border-left: 6px solid #8a5a00; background: #fbf5e8; padding: .6rem 1rem; overflow-wrap: anywhere; }
.verdict p { margin: .3rem 0; } .verdict .word { font-size: 1.3rem; font-weight: 600; }
.verdict.verified { border-color: #1b6e3c; background: #eaf6ee; } .verdict.refused { border-color: #a32020; background: #fbeceb; }
ul { padding-left: 1.2rem; } li { margin: .25rem 0; overflow-wrap: anywhere; }
.wide { overflow-x: auto; } table { border-collapse: collapse; margin: .6rem 0; font-size: 13px; min-width: 38rem; }
caption { text-align: left; color: #59627a; padding: .3rem 0; }
th, td { padding: .28rem .6rem; border-bottom: 1px solid #e4e8ef; text-align: left; vertical-align: top; }
thead th { vertical-align: bottom; background: #f5f7fa; min-width: 3.6rem; max-width: 15rem; overflow-wrap: anywhere; } thead .figure { white-space: normal; }
tbody th { font-weight: 500; max-width: 22rem; overflow-wrap: anywhere; }
.figure { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.worse1 { background: #fdf0e9; } .worse2 { background: #fadfcf; } .worse3 { background: #f6c9ae; } .worse4 { background: #f0b08a; }
.better1 { background: #eaf3fb; } .better2 { background: #d3e6f6; } .better3 { background: #b8d7f0; } .better4 { background: #9bc6e9; }
.charts { display: flex; flex-wrap: wrap; gap: .8rem; } svg { max-width: 100%; height: auto; }
svg text { font: 11px system-ui, sans-serif; fill: #1c2330; } svg .tick { fill: #59627a; font-size: 10px; } svg .name { font-weight: 600; }
.track { fill: #e8ecf2; } .fill { fill: #2f6fb3; } .frame { fill: none; stroke: #c6cedb; } .zero { stroke: #8a94a8; stroke-dasharray: 3 3; }
.reach { stroke-width: 2; } .reach.one { stroke: #2f6fb3; } .reach.other { stroke: #8a94a8; }
circle { fill: #2f6fb3; fill-opacity: .75; } circle.other { fill: #59627a; } circle.anchor { fill: #b3462f; } circle.repeat { fill: #c98a1a; }
.curve { fill: none; stroke: #1c2330; stroke-width: 1.5; }
"""
