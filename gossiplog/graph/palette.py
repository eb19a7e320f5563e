"""The colours of all drawings: the page of a running server, the pictures of a graph, and the file that `graph --format html` writes.

Hues identify: equal roots, and so equal logs, have one hue, and so has each author. Lightness and chroma depend only on the theme, so that
no hue is more striking than another (OKLCH). `drawing/palette.js` computes the same hues.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache

LIGHT: Mapping[str, str] = {
    "ground": "#f7f7f5",
    "surface": "#ffffff",
    "raised": "#f0f0ed",
    "line": "#dcdcd6",
    "strong-line": "#8c8d87",
    "ink": "#1d2026",
    "muted": "#5b616b",
    "accent": "#1f5fbf",
    "good": "#1d7a4b",
    "warn": "#98590a",
    "bad": "#b3261e",
    "dot-lightness": "0.64",
    "dot-chroma": "0.15",
}
"""Custom properties of CSS and their values on a light ground. Text on `ground`, `surface` and `raised` has a contrast of 4.5 or more."""
DARK: Mapping[str, str] = {
    "ground": "#0f1216",
    "surface": "#161a20",
    "raised": "#1f252d",
    "line": "#2c333d",
    "strong-line": "#697584",
    "ink": "#e7e9ed",
    "muted": "#a0a9b6",
    "accent": "#86b4ff",
    "good": "#6fd19c",
    "warn": "#f0b45c",
    "bad": "#ff8f85",
    "dot-lightness": "0.75",
    "dot-chroma": "0.14",
}
"""The same on a dark ground."""
_HUES = 18
"""Authors' hues are 20° apart, so that different ones can be told apart."""
_SHADES = (0.0, -0.13, 0.07)
"""Added to the theme's lightness, for three shades of each hue."""


def palette_css() -> str:
    """Write both themes as a stylesheet."""
    light, dark = (";".join(f"--{name}:{value}" for name, value in theme.items()) for theme in (LIGHT, DARK))
    return f":root{{color-scheme:light dark;{light}}}\n@media (prefers-color-scheme:dark){{:root{{{dark}}}}}\n"


def author_hue(did: str) -> int:
    """Return an author's hue in degrees."""
    return _spread(did) % _HUES * (360 // _HUES)


def _spread(did: str) -> int:
    """FNV-1a of the did's UTF-8, folded."""
    value = 0x811C9DC5
    for byte in did.encode():
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return value ^ value >> 16


@lru_cache(maxsize=1024)
def author_colour(did: str, *, is_dark: bool = False) -> str:
    """Return an author's colour as `#rrggbb`, for programs that may not know OKLCH."""
    theme = DARK if is_dark else LIGHT
    shade = _SHADES[_spread(did) // _HUES % len(_SHADES)]
    return _to_hex(float(theme["dot-lightness"]) + shade, float(theme["dot-chroma"]), math.radians(author_hue(did)))


def _to_hex(lightness: float, chroma: float, hue: float) -> str:
    """Source: Björn Ottosson, "A perceptual color space for image processing" (2020). Colours outside of sRGB are clipped."""
    a, b = chroma * math.cos(hue), chroma * math.sin(hue)
    long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    medium = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    linear = (
        4.0767416621 * long - 3.3077115913 * medium + 0.2309699292 * short,
        -1.2684380046 * long + 2.6097574011 * medium - 0.3413193965 * short,
        -0.0041960863 * long - 0.7034186147 * medium + 1.7076147010 * short,
    )
    return "#" + "".join(f"{round(255 * _gamma(min(1.0, max(0.0, part)))):02x}" for part in linear)


def _gamma(linear: float) -> float:
    return 12.92 * linear if linear <= 0.0031308 else 1.055 * linear ** (1 / 2.4) - 0.055
