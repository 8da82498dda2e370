"""Stack the figure rows of the plane tasks into the picture that opens the README."""

from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
ROWS = ("spirals", "image", "diamond", "checkerboard")
WIDTH = 1400


def main() -> None:
    """Write results/gallery.png."""
    pictures = []
    for task in ROWS:
        picture = Image.open(ROOT / "results" / task / "best.png").convert("RGB")
        height = round(picture.height * WIDTH / picture.width)
        pictures.append(picture.resize((WIDTH, height), Image.Resampling.LANCZOS))
    gallery = Image.new("RGB", (WIDTH, sum(p.height for p in pictures)), "white")
    top = 0
    for picture in pictures:
        gallery.paste(picture, (0, top))
        top += picture.height
    gallery.quantize(256).save(ROOT / "results" / "gallery.png", optimize=True)


if __name__ == "__main__":
    main()
