"""The tasks in the plane, by name."""

from pathlib import Path
from typing import Final

from aem.data.image import ImageTask
from aem.data.synthetic import Checkerboard, Diamond, PlaneTask, Spirals
from aem.errors import AemError

PLANE_TASKS: Final = ("spirals", "checkerboard", "diamond", "image")


def plane_task(name: str, image: str | Path | None = None) -> PlaneTask:
    """Return the task of that name; `image` is the picture of the task "image"."""
    if image is not None and name != "image":
        raise AemError(f"a picture belongs to the task 'image', not to '{name}': {image}")
    match name:
        case "spirals":
            return Spirals()
        case "checkerboard":
            return Checkerboard()
        case "diamond":
            return Diamond()
        case "image":
            return ImageTask(image)
    raise AemError(f"unknown task '{name}'; known: {', '.join(PLANE_TASKS)}")
