"""Arrays of any library as the bytes that they are, without a copy, and new arrays like them.

    lend(array)     a view of the array's memory as bytes, the name of its element type (None for plain bytes), its shape
    make(...)       new arrays like those that were given: NumPy's, PyTorch's, else memoryviews
    new(...)        a new array of NumPy where it can be imported, else a memoryview

Element types go by the names that NumPy, ml_dtypes and PyTorch have for them; `src/dtype.rs` has ours.

NumPy refuses buffers and DLPack of bfloat16, and PyTorch refuses ml_dtypes' arrays; both view such arrays as uint8.
Nothing here imports PyTorch, and NumPy is imported only where a new array of it is made: whoever has such an array has imported it.
"""

from __future__ import annotations

import ctypes
import math
import struct
import sys
from typing import Any

# The formats of `struct` whose items are of these kinds, which the size completes: int and 8 bytes are int64.
_KINDS = {"bool": ("?",), "int": tuple("bhilq"), "uint": tuple("BHILQ"), "float": tuple("efd"), "complex": ("Zf",)}


def _name_of_format(code: str, item_bytes: int) -> str | None:
    """What NumPy calls the elements of a memoryview."""
    kind = next((kind for kind, codes in _KINDS.items() if code in codes), None)
    return kind if kind in (None, "bool") else f"{kind}{8 * item_bytes}"


# Which of these formats `memoryview.cast` takes, by NumPy's names.
_CODES = {_name_of_format(code, struct.calcsize(code)): code for code in "?bBhHiIqQefd"}

# DLPack's kinds of devices whose memory is the host's.
_HOST_DEVICES = (1, 3, 11)


class Refused(Exception):
    """A sentence on why an array is not taken, with the kind of the refusal."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def _not_contiguous(strides: object) -> Refused:
    return Refused("strides", f"it is not C-contiguous, its strides are {strides}: give a contiguous copy")


def _no_memory(size: int) -> Refused:
    return Refused("memory", f"there is no memory for an array of {size} bytes")


def _on_device(device: object) -> Refused:
    return Refused("device", f"it is on the device {device}, and only memory of the host is read: copy it there first")


def _of_address(address: int, size: int) -> Any:
    # A view has strides, which arrays of ctypes leave out. It does not hold the memory: whoever lends the tensor does.
    return memoryview((ctypes.c_uint8 * size).from_address(address)) if size else memoryview(bytearray())


def _of_view(array: Any) -> tuple[Any, str | None, tuple[int, ...]]:
    try:
        view = memoryview(array)
        if not view.c_contiguous:
            raise _not_contiguous(view.strides)
        shape = tuple(view.shape or ())
        name = _name_of_format(view.format.lstrip("@=<" if sys.byteorder == "little" else "@=>"), view.itemsize)
        if name is None:
            raise Refused("dtype", f"its items have the format {view.format!r}, which is no element type")
        # A view of nothing cannot be cast.
        return (view if view.nbytes == 0 else view.cast("B")), name, shape
    except (ValueError, BufferError) as error:
        raise Refused("closed", f"its memory is not there: {error}") from None


def _of_numpy(array: Any) -> tuple[Any, str | None, tuple[int, ...]]:
    if not array.flags.c_contiguous:
        raise _not_contiguous(array.strides)
    if not array.dtype.isnative:
        raise Refused("dtype", f"its items have the byte order {array.dtype.byteorder!r}: give them in that of this machine")
    if array.dtype.hasobject:
        raise Refused("dtype", f"its items are objects of Python, {array.dtype}")
    return array.reshape(-1).view("uint8"), array.dtype.name, tuple(array.shape)


def _of_torch(tensor: Any) -> tuple[Any, str | None, tuple[int, ...]]:
    if tensor.device.type != "cpu":
        raise _on_device(tensor.device)
    if str(tensor.layout) != "torch.strided" or tensor.is_conj() or tensor.is_neg():
        raise Refused("strides", "it is sparse or a view that conjugates or negates: give it resolved and dense")
    if not tensor.is_contiguous():
        raise _not_contiguous(tuple(tensor.stride()))
    size = tensor.numel() * tensor.element_size()
    return _of_address(tensor.data_ptr(), size), str(tensor.dtype), tuple(tensor.shape)


def _is(array: Any, module: str, name: str) -> bool:
    known = sys.modules.get(module)
    return known is not None and isinstance(array, getattr(known, name))


def lend(array: Any) -> tuple[Any, str | None, tuple[int, ...]]:
    """A view of an array's memory as bytes, the name of its element type, and its shape."""
    if _is(array, "numpy", "ndarray"):
        return _of_numpy(array)
    if _is(array, "torch", "Tensor"):
        return _of_torch(array)
    try:
        return _of_view(array)
    except TypeError:
        pass
    device = getattr(array, "__dlpack_device__", None)
    if device is not None:
        kind, number = device()
        if kind not in _HOST_DEVICES:
            raise _on_device(f"{int(kind)}:{number}")
    numpy = sys.modules.get("numpy")
    if device is not None and numpy is not None:
        # An array of an element type that DLPack cannot say is one of NumPy's by another way.
        made = numpy.asarray(array) if hasattr(array, "__array__") else numpy.from_dlpack(array)
        return _of_numpy(made)
    interface = getattr(array, "__array_interface__", None)
    if interface is not None and numpy is not None:
        return _of_numpy(numpy.asarray(array))
    if hasattr(array, "__cuda_array_interface__"):
        raise _on_device("cuda")
    name = type(array).__qualname__
    raise Refused("buffer", f"{name} has no memory to read: give a buffer, a NumPy array or a tensor on the CPU")


def in_numpy(array: Any) -> Any:
    """A tensor of PyTorch's as an array of NumPy, with the types of ml_dtypes where NumPy has none; all others as they are."""
    if not _is(array, "torch", "Tensor"):
        return array
    view, name, shape = lend(array.detach())
    dtype = numpy_dtype(str(name).removeprefix("torch."))
    if dtype is None:
        return array
    import numpy

    return numpy.frombuffer(view, dtype).reshape(shape) if len(view) else numpy.empty(shape, dtype)


def _family(array: Any) -> str:
    if _is(array, "torch", "Tensor"):
        return "torch"
    if "numpy" in sys.modules and (_is(array, "numpy", "ndarray") or _is(array, "numpy", "generic") or hasattr(array, "__dlpack__")):
        return "numpy"
    return "view"


def make(like: Any, raw: bool, dtype: str, item_bytes: int, shapes: list[tuple[int, ...]]) -> list[Any]:
    """A new array like `like` for each shape; where bytes were given for elements of another type, bytes."""
    family = _family(like)
    if raw:
        shapes = [(*shape, item_bytes) for shape in shapes]
        dtype, item_bytes = "uint8", 1
    if family == "torch":
        torch = sys.modules["torch"]
        kind = getattr(torch, dtype, None)
        if kind is not None:
            return [torch.empty(shape, dtype=kind) for shape in shapes]
    if family == "numpy":
        return [new(dtype, item_bytes, shape) for shape in shapes]
    return [_view(dtype, item_bytes, shape) for shape in shapes]


def new(dtype: str, item_bytes: int, shape: tuple[int, ...]) -> Any:
    """A new array of NumPy, or a memoryview where NumPy has no such elements or is not there."""
    kind = numpy_dtype(dtype)
    if kind is None:
        return _view(dtype, item_bytes, shape)
    try:
        return sys.modules["numpy"].empty(shape, dtype=kind)
    except MemoryError:
        raise _no_memory(item_bytes * math.prod(shape)) from None


def seen(memory: Any, dtype: Any, shape: tuple[int, ...], start: int, end: int) -> Any:
    """A part of an array of bytes as an array of NumPy of other elements, which can be read only."""
    array = memory[start:end].view(dtype).reshape(shape)
    array.flags.writeable = False
    return array


def numpy_dtype(name: str) -> Any:
    """NumPy's dtype of this name, or that of ml_dtypes; None without them."""
    try:
        import numpy
    except ImportError:
        return None
    if name in numpy.sctypeDict:
        return numpy.dtype(name)
    try:
        import ml_dtypes
    except ImportError:
        return None
    kind = getattr(ml_dtypes, name, None)
    return None if kind is None else numpy.dtype(kind)


def _view(dtype: str, item_bytes: int, shape: tuple[int, ...]) -> Any:
    size = item_bytes * math.prod(shape)
    try:
        view: Any = memoryview(bytearray(size))
    except MemoryError:
        raise _no_memory(size) from None
    code = _CODES.get(dtype)
    # What is empty has no shape as a memoryview.
    return view if code is None else view.cast(code) if size == 0 else view.cast(code, list(shape))
