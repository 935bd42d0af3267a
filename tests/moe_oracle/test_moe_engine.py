"""What is read from the engine's objects, without the engine."""

from __future__ import annotations

from enum import Enum
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from mono_runtime.errors import InvalidValue
from mono_runtime.hooks.moe_oracle import (
    ActivationFormat,
    AiterSwitches,
    Backend,
    MoeConfig,
    Platform,
)
from mono_runtime.hooks.moe_oracle.engine import read_moe_config, read_platform, read_support


class Theirs(Enum):
    """As vLLM's enumeration of backends; a release may have members that we do not know."""

    AITER = "ROCm AITER"
    TRITON = "TRITON"
    NEW = "of a later release"


class Format(Enum):
    Standard = ("standard",)
    BatchedExperts = ("batched_experts",)


class TritonExperts:
    asked: ClassVar[list[Any]] = []

    @staticmethod
    def is_supported_config(
        cls: type, layer: object, weights: object, activations: object, layout: object
    ) -> tuple[bool, str | None]:
        TritonExperts.asked.append((cls, layer, weights, activations, layout))
        return layout is Format.Standard, None


def platform(*names: str, hopper: bool = False) -> SimpleNamespace:
    every = ("is_tpu", "is_out_of_tree", "is_rocm", "is_cuda", "is_xpu", "is_cpu")
    answers = {name: lambda name=name: name in names for name in every}
    return SimpleNamespace(**answers, is_device_capability_family=lambda family: hopper)


def layer() -> SimpleNamespace:
    return SimpleNamespace(
        hidden_dim=3072,
        hidden_dim_unpadded=2880,
        intermediate_size_per_partition=256,
        intermediate_size_per_partition_unpadded=200,
        activation=SimpleNamespace(value="swigluoai"),
        moe_backend="triton",
        is_lora_enabled=True,
        moe_parallel_config=SimpleNamespace(
            dp_size=4,
            use_batched_activation_format=True,
            use_moonep_kernels=False,
            all2all_backend="deepep_low_latency",
        ),
    )


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["is_rocm"], Platform.ROCM),
        (["is_cuda"], Platform.CUDA),
        (["is_xpu"], Platform.XPU),
        (["is_cpu"], Platform.CPU),
        (["is_tpu"], Platform.TPU),
        (["is_out_of_tree"], Platform.OUT_OF_TREE),
        # A plug-in that builds on a platform that is known.
        (["is_out_of_tree", "is_cuda"], Platform.OUT_OF_TREE),
    ],
)
def test_the_platform_is_what_the_engine_says(names: list[str], found: Platform) -> None:
    assert read_platform(platform(*names)) is found


def test_a_platform_without_experts_is_an_error() -> None:
    with pytest.raises(InvalidValue, match="SimpleNamespace has no MoE backends"):
        read_platform(platform())


def test_a_layer_is_read_with_the_sizes_of_its_checkpoint() -> None:
    environ = {"VLLM_ROCM_USE_AITER": "1"}
    assert read_moe_config(
        layer(), platform("is_cuda", hopper=True), rdna_aiter=False, environ=environ
    ) == MoeConfig(
        platform=Platform.CUDA,
        hidden=2880,
        intermediate=200,
        activation="swigluoai",
        moe_backend="triton",
        all2all="deepep_low_latency",
        batched=True,
        moonep=False,
        data_parallel=4,
        lora=True,
        hopper=True,
        rdna_aiter=False,
        switches=AiterSwitches(aiter=True),
    )


def test_compute_capability_is_not_asked_beside_cuda() -> None:
    assert not read_moe_config(
        layer(), platform("is_rocm", hopper=True), rdna_aiter=True, environ={}
    ).hopper


def test_support_is_what_the_engines_classes_say() -> None:
    subject = layer()
    oracle = SimpleNamespace(
        UnquantizedMoeBackend=Theirs,
        backend_to_kernel_cls=lambda member: {Theirs.TRITON: [TritonExperts]}[member],
    )
    support = read_support(subject, oracle, lambda: TritonExperts, Format)
    (experts,) = support.engine(Backend.TRITON)
    assert (experts.name, experts.implementation) == ("TritonExperts", TritonExperts)
    TritonExperts.asked.clear()
    assert experts.refusal(ActivationFormat.STANDARD) is None
    assert experts.refusal(ActivationFormat.BATCHED) == "it does not support the deployment"
    assert TritonExperts.asked == [
        (TritonExperts, subject, None, None, Format.Standard),
        (TritonExperts, subject, None, None, Format.BatchedExperts),
    ]
    assert [e.name for e in support.lora()] == ["TritonExperts"]
    # This engine knows no such backend, and is not asked for its classes.
    assert support.engine(Backend.MOONEP) == ()
