"""Which backend runs a layer's experts: a case for each rule, with the reasons for all that was passed over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from mono_runtime.errors import InvalidValue
from mono_runtime.hooks.moe_oracle import (
    ActivationFormat,
    AiterSwitches,
    Backend,
    BackendUnsupported,
    Experts,
    MoeConfig,
    MonoOffer,
    NoBackend,
    Platform,
    Selection,
    Support,
    select,
)
from mono_runtime.hooks.moe_oracle.priority import priority

AITER, TRITON, BATCHED = Backend.AITER, Backend.TRITON, Backend.BATCHED_TRITON
TRTLLM, CUTLASS, MONO = Backend.FLASHINFER_TRTLLM, Backend.FLASHINFER_CUTLASS, Backend.MONO
ROCM = MoeConfig(platform=Platform.ROCM, hidden=4096, intermediate=512)
CUDA = replace(ROCM, platform=Platform.CUDA)
BATCHED_FORMAT = replace(ROCM, batched=True, all2all="deepep_low_latency")


def support(
    refused: Mapping[Backend, str] | None = None,
    *,
    formats: bool = True,
    lora: str | None = "no such GPU",
    mono: MonoOffer | None = None,
) -> Support:
    """Every backend can, except those with a reason; and each takes its own activation format alone."""
    reasons = dict(refused or {})

    def engine(backend: Backend) -> tuple[Experts, ...]:
        def refusal(layout: ActivationFormat) -> str | None:
            own = ActivationFormat.BATCHED if backend is BATCHED else ActivationFormat.STANDARD
            if formats and layout is not own:
                return f"not in the {layout.value} format"
            return reasons.get(backend)

        return (Experts(f"{backend.name.title()}Experts", refusal),)

    return Support(engine, lambda: (Experts("LoraExperts", lambda layout: lora),), mono)


def rejections(selection: Selection) -> list[tuple[Backend, str]]:
    return [(r.backend, r.reason) for r in selection.rejections]


@pytest.mark.parametrize(
    ("config", "order"),
    [
        (ROCM, [AITER, TRITON, BATCHED]),
        (CUDA, [TRTLLM, CUTLASS, TRITON, BATCHED]),
        (replace(CUDA, hopper=True), [TRITON, BATCHED, TRTLLM, CUTLASS]),
        (replace(CUDA, data_parallel=2), [TRTLLM, TRITON, BATCHED, CUTLASS]),
        (replace(CUDA, activation="swigluoai"), [TRITON, BATCHED, TRTLLM, CUTLASS]),
        (replace(CUDA, activation="silu"), [TRTLLM, CUTLASS, TRITON, BATCHED]),
        (
            replace(CUDA, activation="swigluoai_uninterleave"),
            [TRTLLM, CUTLASS, TRITON, BATCHED],
        ),
        (
            replace(CUDA, activation="swigluoai", data_parallel=8),
            [TRITON, BATCHED, TRTLLM, CUTLASS],
        ),
        (replace(ROCM, hopper=True, data_parallel=2), [AITER, TRITON, BATCHED]),
        (replace(ROCM, platform=Platform.XPU), [Backend.XPU, TRITON]),
        (replace(ROCM, platform=Platform.CPU), [Backend.CPU]),
        (replace(ROCM, platform=Platform.TPU), [Backend.TPU]),
        (replace(ROCM, platform=Platform.OUT_OF_TREE), [Backend.OUT_OF_TREE]),
    ],
)
def test_each_platform_has_its_order(config: MoeConfig, order: list[Backend]) -> None:
    assert list(priority(config)) == order


@pytest.mark.parametrize(
    ("config", "refused", "chosen", "rejected"),
    [
        (ROCM, {}, AITER, []),
        (ROCM, {AITER: "off"}, TRITON, [(AITER, "off")]),
        (
            BATCHED_FORMAT,
            {},
            BATCHED,
            [
                (AITER, "not in the batched_experts format"),
                (TRITON, "not in the batched_experts format"),
            ],
        ),
        (CUDA, {TRTLLM: "a", CUTLASS: "b"}, TRITON, [(TRTLLM, "a"), (CUTLASS, "b")]),
        (replace(CUDA, hopper=True), {TRITON: "c"}, TRTLLM, None),
        (replace(ROCM, platform=Platform.XPU), {Backend.XPU: "x"}, TRITON, [(Backend.XPU, "x")]),
        (replace(ROCM, platform=Platform.CPU), {}, Backend.CPU, []),
    ],
)
def test_the_first_that_can_is_chosen_and_the_others_say_why(
    config: MoeConfig,
    refused: dict[Backend, str],
    chosen: Backend,
    rejected: list[tuple[Backend, str]] | None,
) -> None:
    selection = select(config, support(refused))
    assert selection.backend is chosen
    assert selection.experts is not None
    assert selection.experts.name == f"{chosen.name.title()}Experts"
    assert not selection.fallback
    if rejected is not None:
        assert rejections(selection) == rejected


@pytest.mark.parametrize(
    ("platform", "backend"),
    [(Platform.TPU, Backend.TPU), (Platform.OUT_OF_TREE, Backend.OUT_OF_TREE)],
)
def test_a_platform_with_experts_of_its_own_is_not_asked(
    platform: Platform, backend: Backend
) -> None:
    config = replace(ROCM, platform=platform, moonep=True, moe_backend="aiter", lora=True)
    selection = select(config, support(dict.fromkeys(Backend, "never asked")))
    assert (selection.backend, selection.experts) == (backend, None)


def test_the_second_implementation_of_a_backend_serves_where_the_first_cannot() -> None:
    def engine(backend: Backend) -> tuple[Experts, ...]:
        return (
            Experts("Monolithic", lambda layout: "the routing is adjusted"),
            Experts("Modular", lambda layout: None, implementation="the class"),
        )

    selection = select(CUDA, Support(engine))
    assert selection.experts is not None
    assert (selection.experts.name, selection.experts.implementation) == ("Modular", "the class")
    assert [str(r) for r in selection.rejections] == [
        "FlashInfer TRTLLM (Monolithic): the routing is adjusted"
    ]


def test_nothing_that_can_is_an_error_with_every_reason() -> None:
    refused = {AITER: "AITER is off", TRITON: "batch invariance", BATCHED: "no bias"}
    with pytest.raises(NoBackend) as caught:
        select(ROCM, support(refused, formats=False))
    text = str(caught.value)
    assert "ROCm AITER (AiterExperts): AITER is off" in text
    assert "TRITON (TritonExperts): batch invariance" in text
    assert "BATCHED_TRITON (Batched_TritonExperts): no bias" in text
    assert "rocm, standard activation format" in text


@pytest.mark.parametrize(
    ("config", "chosen"),
    [
        (replace(ROCM, moe_backend="triton"), TRITON),
        (replace(BATCHED_FORMAT, moe_backend="triton"), BATCHED),
        (replace(ROCM, moe_backend="batched_triton"), BATCHED),
        (replace(ROCM, moe_backend="aiter"), AITER),
        (replace(ROCM, moe_backend="flashinfer_cutlass"), CUTLASS),
        (replace(CUDA, moe_backend="flashinfer_trtllm", hopper=True), TRTLLM),
        (replace(CUDA, moe_backend="aiter"), AITER),
        # A request goes before the switches.
        (replace(ROCM, moe_backend="triton", switches=AiterSwitches(True, True)), TRITON),
        (replace(ROCM, moe_backend="aiter", switches=AiterSwitches(False, False)), AITER),
        # These run quantised weights only, so nothing was asked of this layer.
        (replace(ROCM, moe_backend="humming"), AITER),
        (replace(CUDA, moe_backend="marlin"), TRTLLM),
    ],
)
def test_a_request_is_what_runs(config: MoeConfig, chosen: Backend) -> None:
    selection = select(config, support())
    assert selection.backend is chosen
    assert selection.rejections == ()


def test_a_request_that_cannot_run_is_an_error_and_no_fallback() -> None:
    config = replace(ROCM, moe_backend="triton")
    with pytest.raises(BackendUnsupported, match="TRITON was asked for by --moe-backend") as caught:
        select(config, support({TRITON: "hidden size 4096"}))
    assert "TRITON (TritonExperts): hidden size 4096" in str(caught.value)


def test_a_request_for_aiter_where_tokens_come_batched_is_an_error() -> None:
    with pytest.raises(BackendUnsupported, match="not in the batched_experts format"):
        select(replace(BATCHED_FORMAT, moe_backend="aiter"), support())


@pytest.mark.parametrize("name", ["cutlass", "deep_gemm", "Triton", ""])
@pytest.mark.parametrize("platform", [Platform.ROCM, Platform.CPU])
def test_a_name_that_runs_no_unquantised_experts_is_an_error(name: str, platform: Platform) -> None:
    with pytest.raises(InvalidValue) as caught:
        select(replace(ROCM, platform=platform, moe_backend=name), support())
    assert repr(name) in str(caught.value)
    assert (
        "auto, mono, aiter, triton, batched_triton, flashinfer_trtllm, flashinfer_cutlass, "
        "humming, marlin"
    ) in str(caught.value)


@pytest.mark.parametrize(
    ("switches", "rdna", "chosen", "reason"),
    [
        (AiterSwitches(), False, AITER, None),
        (AiterSwitches(aiter=True), False, AITER, None),
        (AiterSwitches(aiter=True, experts=True), False, AITER, None),
        (AiterSwitches(aiter=False), False, TRITON, "VLLM_ROCM_USE_AITER is off"),
        (AiterSwitches(aiter=False, experts=True), False, TRITON, "VLLM_ROCM_USE_AITER is off"),
        (AiterSwitches(experts=True), False, TRITON, "VLLM_ROCM_USE_AITER is not set"),
        (AiterSwitches(experts=False), False, TRITON, "VLLM_ROCM_USE_AITER is not set"),
        (AiterSwitches(aiter=True, experts=False), False, TRITON, "VLLM_ROCM_USE_AITER_MOE is off"),
        (AiterSwitches(aiter=True), True, TRITON, "AITER has no kernels for experts on RDNA"),
    ],
)
def test_switches_keep_aiter_away_or_bring_it(
    switches: AiterSwitches, rdna: bool, chosen: Backend, reason: str | None
) -> None:
    selection = select(replace(ROCM, switches=switches, rdna_aiter=rdna), support())
    assert selection.backend is chosen
    assert rejections(selection) == ([(AITER, reason)] if reason else [])
    assert not selection.fallback


def test_an_explicit_switch_that_cannot_be_followed_is_a_warned_fallback() -> None:
    config = replace(ROCM, switches=AiterSwitches(aiter=True))
    selection = select(config, support({AITER: "the layer has no gate"}))
    assert selection.backend is TRITON
    assert selection.fallback
    assert selection.warning == (
        "VLLM_ROCM_USE_AITER_MOE asks for AITER, which cannot run these experts "
        "(the layer has no gate). Falling back to the first that can of: TRITON, BATCHED_TRITON."
    )
    assert rejections(selection) == [(AITER, "the layer has no gate")]


def test_an_explicit_switch_tries_aiter_where_the_platform_does_not_list_it() -> None:
    on = replace(CUDA, switches=AiterSwitches(aiter=True))
    fallback = select(on, support({AITER: "not ROCm"}))
    assert (fallback.backend, fallback.fallback) == (TRTLLM, True)
    off = select(replace(CUDA, switches=AiterSwitches(aiter=False)), support())
    assert (off.backend, off.rejections) == (TRTLLM, ())


@pytest.mark.parametrize(
    ("environ", "switches"),
    [
        ({}, AiterSwitches(None, None)),
        ({"VLLM_ROCM_USE_AITER": "1"}, AiterSwitches(True, None)),
        ({"VLLM_ROCM_USE_AITER": "True"}, AiterSwitches(True, None)),
        ({"VLLM_ROCM_USE_AITER": "yes"}, AiterSwitches(False, None)),
        ({"VLLM_ROCM_USE_AITER": ""}, AiterSwitches(False, None)),
        ({"VLLM_ROCM_USE_AITER_MOE": "0"}, AiterSwitches(None, False)),
        (
            {"VLLM_ROCM_USE_AITER": "0", "VLLM_ROCM_USE_AITER_MOE": "TRUE"},
            AiterSwitches(False, True),
        ),
    ],
)
def test_switches_are_read_as_the_engine_reads_them(
    environ: dict[str, str], switches: AiterSwitches
) -> None:
    assert AiterSwitches.read(environ) == switches


def test_moonep_leaves_no_choice() -> None:
    config = replace(CUDA, moonep=True, all2all="moonep", moe_backend="triton")
    assert select(config, support()).backend is Backend.MOONEP
    with pytest.raises(BackendUnsupported, match="MoonEP's weight layout allows"):
        select(config, support({Backend.MOONEP: "expert load balancing"}))


class TestAdapters:
    def test_flashinfer_serves_them_where_it_can(self) -> None:
        selection = select(replace(CUDA, lora=True), support(lora=None))
        assert selection.backend is TRTLLM
        assert selection.experts is not None
        assert selection.experts.name == "LoraExperts"

    def test_flashinfer_needs_blocks_of_128(self) -> None:
        config = replace(CUDA, lora=True, intermediate=192)
        selection = select(config, support(lora=None))
        assert selection.backend is TRITON
        assert [str(r) for r in selection.rejections] == [
            "FlashInfer TRTLLM (LoraExperts): an intermediate size of 192 is no multiple of 128"
        ]

    def test_triton_serves_them_otherwise(self) -> None:
        config = replace(ROCM, lora=True, moe_backend="aiter", switches=AiterSwitches(aiter=True))
        selection = select(config, support())
        assert selection.backend is TRITON
        assert rejections(selection) == [(TRTLLM, "no such GPU")]

    def test_tokens_must_be_in_the_standard_format(self) -> None:
        for config in (BATCHED_FORMAT, replace(ROCM, moe_backend="batched_triton")):
            with pytest.raises(BackendUnsupported, match="need tokens in the standard format"):
                select(replace(config, lora=True), support(lora=None))

    def test_nothing_that_applies_them_is_an_error_with_both_reasons(self) -> None:
        with pytest.raises(BackendUnsupported) as caught:
            select(replace(ROCM, lora=True), support({TRITON: "not on this device"}))
        assert "FlashInfer TRTLLM (LoraExperts): no such GPU" in str(caught.value)
        assert "TRITON (TritonExperts): not on this device" in str(caught.value)


class TestMonoLaunches:
    def test_come_first_and_leave_other_steps_to_the_engine(self) -> None:
        selection = select(ROCM, support(mono=MonoOffer()))
        assert (selection.backend, selection.experts) == (MONO, None)
        assert selection.order == (MONO, AITER, TRITON, BATCHED)
        assert selection.other_steps is not None
        assert selection.other_steps.backend is AITER
        assert selection.other_steps.order == (AITER, TRITON, BATCHED)
        assert selection.rejections == ()

    @pytest.mark.parametrize(
        "switches", [AiterSwitches(), AiterSwitches(True, True), AiterSwitches(False)]
    )
    def test_do_not_ask_the_switches_of_aiter(self, switches: AiterSwitches) -> None:
        selection = select(replace(ROCM, switches=switches), support(mono=MonoOffer()))
        assert selection.backend is MONO
        assert selection.other_steps is not None
        assert selection.other_steps.backend is (TRITON if switches.aiter is False else AITER)

    @pytest.mark.parametrize(
        ("config", "offer", "reasons"),
        [
            (
                ROCM,
                MonoOffer(missing=("k1 tokens=6", "k2 tokens=6")),
                ["the store lacks k1 tokens=6, k2 tokens=6"],
            ),
            (
                ROCM,
                MonoOffer(missing=("a", "b", "c", "d", "e")),
                ["the store lacks a, b, c and 2 more"],
            ),
            (
                ROCM,
                MonoOffer(declines=("needs 384 experts, not 64", "needs sqrtsoftplus")),
                ["needs 384 experts, not 64", "needs sqrtsoftplus"],
            ),
            (CUDA, MonoOffer(), ["mono launches are for ROCm"]),
            (
                replace(ROCM, moe_backend="triton"),
                MonoOffer(),
                ["--moe-backend triton asks for another backend"],
            ),
            (replace(ROCM, lora=True), MonoOffer(), ["the launches apply no LoRA adapters"]),
            (
                BATCHED_FORMAT,
                MonoOffer(),
                ["tokens arrive in the batched_experts format"],
            ),
            (
                replace(ROCM, moonep=True),
                MonoOffer(),
                ["MoonEP lays the experts' weights out its own way"],
            ),
            (
                replace(ROCM, intermediate=200),
                MonoOffer(),
                ["ROCm AITER pads the weights from 4096 x 200 to 4096 x 256"],
            ),
            (
                replace(CUDA, lora=True, batched=False, intermediate=200),
                MonoOffer(missing=("k1",), declines=("tp",), own_weights=True),
                [
                    "mono launches are for ROCm",
                    "the launches apply no LoRA adapters",
                    "the store lacks k1",
                    "tp",
                ],
            ),
        ],
    )
    def test_are_passed_over_with_every_reason(
        self, config: MoeConfig, offer: MonoOffer, reasons: list[str]
    ) -> None:
        selection = select(config, support(mono=offer))
        stock = select(config, support())
        assert selection.backend is stock.backend
        assert [r.reason for r in selection.rejections if r.backend is MONO] == reasons
        assert selection.rejections[len(reasons) :] == stock.rejections
        assert selection.other_steps is None

    @pytest.mark.parametrize("name", ["auto", "humming", "marlin", "mono"])
    def test_serve_where_no_other_backend_was_asked_for(self, name: str) -> None:
        selection = select(replace(ROCM, moe_backend=name), support(mono=MonoOffer()))
        assert selection.backend is MONO
        assert selection.other_steps is not None
        assert selection.other_steps.backend is AITER

    def test_read_padded_weights_only_from_copies_of_their_own(self) -> None:
        config = replace(ROCM, intermediate=200)
        selection = select(config, support(mono=MonoOffer(own_weights=True)))
        assert selection.backend is MONO
        assert selection.sizes(4096, 200) == (4096, 256)

    def test_asked_for_by_name_are_an_error_when_they_cannot(self) -> None:
        config = replace(ROCM, moe_backend="mono")
        with pytest.raises(BackendUnsupported, match="no store is configured"):
            select(config, support())
        with pytest.raises(BackendUnsupported) as caught:
            select(config, support(mono=MonoOffer(missing=("k1",), declines=("needs TP 2 or 4",))))
        assert "mono launch: the store lacks k1" in str(caught.value)
        assert "mono launch: needs TP 2 or 4" in str(caught.value)

    def test_do_not_help_where_the_engine_cannot_run_other_steps(self) -> None:
        refused = {AITER: "off", TRITON: "off", BATCHED: "off"}
        with pytest.raises(NoBackend):
            select(ROCM, support(refused, mono=MonoOffer()))

    def test_keep_the_warning_of_the_backend_behind_them(self) -> None:
        config = replace(ROCM, switches=AiterSwitches(aiter=True))
        selection = select(config, support({AITER: "no gate"}, mono=MonoOffer()))
        assert (selection.backend, selection.fallback) == (MONO, True)


def test_a_selection_reads_as_one_block_of_text() -> None:
    selection = select(ROCM, support({AITER: "off"}, mono=MonoOffer(missing=("k1 tokens=6",))))
    assert str(selection).splitlines() == [
        "MoE backend TRITON (TritonExperts), of ROCm AITER, TRITON, BATCHED_TRITON",
        "  not mono launch: the store lacks k1 tokens=6",
        "  not ROCm AITER (AiterExperts): off",
    ]
    with_mono = select(ROCM, support(mono=MonoOffer()))
    assert str(with_mono).splitlines() == [
        "MoE backend mono launch, of mono launch, ROCm AITER, TRITON, BATCHED_TRITON",
        "  other steps: ROCm AITER",
    ]
