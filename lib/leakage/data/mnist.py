"""MNIST's handwritten digits, read strictly from the idx format.

The test set, 10,000 images, is what the book runs on. Pixels are bytes from 0 to 255. Nothing here is standardised or
shuffled.
"""

import struct

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from torch import Tensor

from leakage.data import fetch
from leakage.data.registry import malformed

_IMAGES_MAGIC = 2051  # idx: unsigned bytes, three axes
_LABELS_MAGIC = 2049  # idx: unsigned bytes, one axis
_SIDE = 28


def load() -> tuple[UInt8[Tensor, "n 28 28"], Int64[Tensor, " n"]]:
    """The test set of MNIST: grey values from 0 (background) to 255, and the digits.

    Raises:
        DataAbsent: if the files are not here.
        DataDamaged: if a file is not what it should be.
    """
    images = parse_images(fetch.read_payload("mnist", "images"), source="mnist/images")
    labels = parse_labels(fetch.read_payload("mnist", "labels"), source="mnist/labels")
    if len(images) != len(labels):
        raise malformed("mnist", "as many images as labels", f"{len(images):,} and {len(labels):,}")
    return images, labels


def parse_images(payload: bytes, *, source: str = "payload") -> UInt8[Tensor, "n 28 28"]:
    """The images of an idx payload: magic 2051, count, 28, 28 (big-endian), then one byte a pixel.

    Raises:
        DataDamaged: if the header or the length differs; `source` is named in the message.
    """
    n, height, width = _header(payload, magic=_IMAGES_MAGIC, axes=3, source=source)
    if (height, width) != (_SIDE, _SIDE):
        raise malformed(source, f"images of {_SIDE} by {_SIDE} pixels", f"{height} by {width}")
    return _bytes_after(payload, 16, n * height * width, source=source).reshape(n, height, width)


def parse_labels(payload: bytes, *, source: str = "payload") -> Int64[Tensor, " n"]:
    """The labels of an idx payload: magic 2049, count (big-endian), then one byte a label, 0 to 9.

    Raises:
        DataDamaged: if the header, the length or a label differs; `source` is named in the message.
    """
    (n,) = _header(payload, magic=_LABELS_MAGIC, axes=1, source=source)
    labels = _bytes_after(payload, 8, n, source=source).long()
    if n and int(labels.max()) > 9:
        raise malformed(source, "labels from 0 to 9", str(int(labels.max())))
    return labels


def _header(payload: bytes, *, magic: int, axes: int, source: str) -> tuple[int, ...]:
    length = 4 * (1 + axes)
    if len(payload) < length:
        raise malformed(source, f"an idx header of {length} bytes", f"{len(payload)} bytes in all")
    found, *sizes = struct.unpack(f">{1 + axes}I", payload[:length])
    if found != magic:
        raise malformed(source, f"an idx file that begins with the number {magic}", str(found))
    return tuple(sizes)


def _bytes_after(payload: bytes, start: int, count: int, *, source: str) -> UInt8[Tensor, " count"]:
    if len(payload) - start != count:
        raise malformed(source, f"the {count:,} bytes of content its header promises", f"{len(payload) - start:,}")
    return torch.from_numpy(np.frombuffer(payload, dtype=np.uint8, offset=start).copy())
