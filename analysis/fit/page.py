"""One self-contained HTML page: the sentence, the heat map, the table and the assumptions."""

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from analysis.figures import ReportFigure
from analysis.fit.ask import Fit
from analysis.fit.heat import heat_map, legend
from analysis.fit.tables import assumptions_of, heads_of, lines_of, workload_of_fit
from analysis.fit.words import lead_of


def html_of(fit: Fit) -> str:
    """The page as text; it loads nothing from elsewhere."""
    figures = []
    if fit.columns:
        figure = heat_map(fit)
        alt = f"Predicted peak of every policy by {fit.question.vary}. The same figures are in the table."
        drawn = Markup(figure.to_json())  # noqa: S704 - Plotly escapes what could end the script element
        title = f"Predicted peak by {fit.question.vary}"
        figures.append(
            ReportFigure("heat", title, alt, int(figure.layout.height), drawn, legend=tuple(legend()))
        )
    heads = [(head.removeprefix(">"), "num" if head.startswith(">") else "") for head in heads_of(fit)]
    page = _templates().get_template("fit.html.j2")
    return page.render(
        name=workload_of_fit(fit),
        lead=lead_of(fit),
        figures=figures,
        heads=heads,
        lines=lines_of(fit),
        assumptions=assumptions_of(fit),
        asked=fit.asked,
        plotly_js=_plotly_script(),
    )


def _templates() -> Environment:
    return Environment(
        loader=PackageLoader("analysis"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@cache
def _plotly_script() -> Markup:
    from plotly.offline import get_plotlyjs

    return Markup(get_plotlyjs())  # noqa: S704 - the library's own script, inlined once
