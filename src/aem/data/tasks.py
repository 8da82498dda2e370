"""The tasks in the plane, by name."""

from pathlib import Path
from typing import Final

from aem.data.image import ImageTask
from aem.data.synthetic import Checkerboard, Diamond, PlaneTask, Spirals
from aem.errors import AemError

PLANE_TASKS: Final[dict[str, type[PlaneTask]]] = {
    task.name: task for task in (Spirals, Checkerboard, Diamond, ImageTask)
}


def plane_task(name: str, image: str | Path | None = None) -> PlaneTask:
    """Return a task in the plane by its name.

    Parameters
    ----------
    name
        one of `PLANE_TASKS`.
    image
        the picture of the task "image"; the one that ships with the package without it.
    """
    if image is not None and name != "image":
        raise AemError(f"a picture belongs to the task 'image', not to '{name}': {image}")
    if name == "image":
        return ImageTask(image)
    if name in PLANE_TASKS:
        return PLANE_TASKS[name]()
    raise AemError(f"unknown task '{name}'; known: {', '.join(PLANE_TASKS)}")
