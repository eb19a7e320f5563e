"""Drawing a part of a log's graph: lanes are laid out once, and drawn as text, DOT, SVG or an HTML page."""

from .html import draw_html
from .layout import GraphNode, GraphRow, Stroke, lay_out
from .svg import draw_svg
from .text import TextStyle, draw_dot, draw_text

__all__ = ["GraphNode", "GraphRow", "Stroke", "TextStyle", "draw_dot", "draw_html", "draw_svg", "draw_text", "lay_out"]
