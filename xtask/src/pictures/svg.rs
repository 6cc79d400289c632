//! The common parts of drawings.

/// The beginning of a drawing that `</svg>` ends, on light paper or dark.
pub(super) fn paper(width: f64, height: f64, label: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{}\">\n\
         <style>\n\
         .paper {{ fill: #ffffff }} text {{ fill: #1b1f24; font: 15px system-ui, 'DejaVu Sans', sans-serif }}\n\
         .head {{ font-weight: 600 }} .soft {{ fill: #57606a; font-size: 13px }} .good {{ fill: #1f7a5c }} .bad {{ fill: #c4570c }}\n\
         .batch {{ fill: #8a93a0 }} .whisker {{ fill: none; stroke: #1b1f24 }} .alone {{ stroke: #57606a; stroke-dasharray: 4 3 }} .grid {{ stroke: #8a93a0; stroke-width: 0.5 }} polyline {{ fill: none; stroke-width: 1.5 }}\n\
         text.one, text.two, text.three {{ font-size: 13px }} text.one {{ fill: #1f7a5c }} text.two {{ fill: #c4570c }} text.three {{ fill: #57606a }}\n\
         polyline.one {{ stroke: #1f7a5c }} polyline.two {{ stroke: #c4570c }} polyline.three {{ stroke: #57606a }}\n\
         @media (prefers-color-scheme: dark) {{ .paper {{ fill: #14171b }} text {{ fill: #e6e9ed }} .soft, text.three {{ fill: #9aa4af }}\n\
         .good, text.one {{ fill: #3fbf95 }} .bad, text.two {{ fill: #f08a3c }} .batch {{ fill: #6b7480 }} .whisker {{ stroke: #e6e9ed }} .alone {{ stroke: #9aa4af }}\n\
         polyline.one {{ stroke: #3fbf95 }} polyline.two {{ stroke: #f08a3c }} polyline.three {{ stroke: #9aa4af }} }}\n\
         </style>\n<rect class=\"paper\" width=\"{width}\" height=\"{height}\" rx=\"8\"/>\n",
        escaped(label),
    )
}

/// Text that is safe in SVG.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
