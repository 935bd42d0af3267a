"""Loads and stores through AMD buffer descriptors, addressed in elements.

Written on `flydsl.expr` alone; the kernels that use it see the same values, and the compiler the same
code, as with AITER's module of this name.
"""

from __future__ import annotations

from typing import Any

import flydsl.expr as fx
from flydsl.expr import arith, rocdl
from flydsl.expr.typing import T

__all__ = ["buffer_load", "buffer_store", "create_buffer_resource_from_addr"]

# The record count of a descriptor is 32 bits wide: the most that can be bounds-checked.
_WHOLE = 0xFFFFFFFF
# Beyond any record count in use, so the hardware drops the access of a lane that is masked out.
_OUTSIDE = 0x7FFFFFFF


def create_buffer_resource_from_addr(addr_i64: Any, *, num_records_bytes: Any = None) -> Any:
    """A buffer resource (``!llvm.ptr<8>``) that starts at a 64-bit device address.

    Args:
        addr_i64: the address, an i64 value or `fx.Int64`.
        num_records_bytes: bytes that may be accessed, an int or a value; without it, 4 GiB - 1.
    """
    space = fx.PointerType.get(T.i8, fx.AddressSpace.Global)
    pointer = fx.inttoptr(space, _value(addr_i64))
    if isinstance(num_records_bytes, int):
        num_records_bytes = max(0, min(num_records_bytes, _WHOLE))
    records = fx.Int64(_WHOLE if num_records_bytes is None else num_records_bytes)
    return rocdl.get_buffer_rsrc(rocdl.make_buffer_ptr(pointer, records))


def buffer_load(
    rsrc: Any,
    offset: Any,
    vec_width: int = 4,
    dtype: Any = None,
    mask: Any = None,
    cache_modifier: int = 0,
    soffset_bytes: Any = None,
) -> Any:
    """``vec_width`` elements of ``dtype`` (f32 by default) from element ``offset``.

    Args:
        mask: an i1 value; where it is false the load reads nothing and gives 0.
        cache_modifier: the instruction's cache policy bits.
        soffset_bytes: wave-uniform bytes to add, an int or a value.
    """
    element = T.f32 if dtype is None else getattr(dtype, "ir_type", dtype)
    result = element if vec_width == 1 else T.vec(vec_width, element)
    return rocdl.raw_ptr_buffer_load(
        result,
        _value(rsrc),
        _byte_offset(offset, element, mask),
        _i32(0 if soffset_bytes is None else soffset_bytes),
        aux=_policy(cache_modifier),
    )


def buffer_store(
    data: Any,
    rsrc: Any,
    offset: Any,
    mask: Any = None,
    cache_modifier: int = 0,
    *,
    soffset_bytes: Any = None,
    offset_is_bytes: bool = False,
) -> None:
    """Store ``data``, a scalar or a vector, at element ``offset``; see `buffer_load` for the rest.

    Args:
        offset_is_bytes: ``offset`` counts bytes instead of elements.
    """
    data = _value(data)
    element = None if offset_is_bytes else getattr(data.type, "element_type", data.type)
    rocdl.raw_ptr_buffer_store(
        data,
        _value(rsrc),
        _byte_offset(offset, element, mask),
        _i32(0 if soffset_bytes is None else soffset_bytes),
        aux=_policy(cache_modifier),
    )


def _policy(cache_modifier: int) -> Any:
    return arith.IntegerAttr.get(T.i32, cache_modifier) if cache_modifier else None


def _byte_offset(offset: Any, element: Any, mask: Any) -> Any:
    value = _i32(offset)
    if element is not None:
        value = arith.muli(value, _i32(element.width // 8))
    if mask is not None:
        value = arith.select(_value(mask), value, _i32(_OUTSIDE))
    return value


def _i32(value: Any) -> Any:
    if isinstance(value, int):
        # The constant is signed: addresses in the upper half of 4 GiB wrap.
        return fx.Int32(value - (1 << 32) if value > _OUTSIDE else value).ir_value()
    value = _value(value)
    if value.type == T.i32:
        return value
    if value.type == T.index:
        return arith.index_cast(T.i32, value)
    return (arith.trunci if value.type.width > 32 else arith.extsi)(T.i32, value)


def _value(value: Any) -> Any:
    # Struct fields and other references hold their value one or more attributes down.
    found = fx.as_ir_value(value)
    while not hasattr(found, "type"):
        inner = getattr(found, "_value", getattr(found, "value", None))
        if inner is None:
            raise TypeError(f"{value!r} is no value that a kernel can use")
        found = fx.as_ir_value(inner)
    return found
