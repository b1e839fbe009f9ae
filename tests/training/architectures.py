"""Architectures of packages that people train: small configurations, with their own losses.

The models of transformers keep the dropout that they have by default. Each entry makes its model
when it is checked, so that this file imports no package.
"""

import importlib
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from tests.training.zoo import Entry

WORDS, LENGTH, WIDTH = 24, 6, 16

_TRANSFORMER: Mapping[str, Any] = {
    "vocab_size": WORDS,
    "hidden_size": WIDTH,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 16,
}
_BOUNDARIES: Mapping[str, Any] = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_IMAGE: Mapping[str, Any] = {
    "hidden_size": WIDTH,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "image_size": 16,
    "patch_size": 4,
}
_SPEECH: Mapping[str, Any] = {
    "vocab_size": 8,
    "hidden_size": WIDTH,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "conv_dim": (8, 8),
    "conv_stride": (4, 4),
    "conv_kernel": (8, 4),
    "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2,
    "ctc_loss_reduction": "mean",
    "ctc_zero_infinity": True,
    "mask_time_prob": 0.0,
    "layerdrop": 0.0,
}


def _transformer(kind: str, **changes: Any) -> Callable[[], nn.Module]:
    """A model of transformers; ``kind`` is ``config:model``."""

    def make() -> nn.Module:
        package = importlib.import_module("transformers")
        config, model = (getattr(package, name) for name in kind.split(":"))
        result: nn.Module = model(config(**changes))
        return result

    return make


def _text(kind: str, **changes: Any) -> Callable[[], nn.Module]:
    return _transformer(kind, **{**_TRANSFORMER, **changes})


def _timm(name: str, **options: Any) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        model: nn.Module = importlib.import_module("timm").create_model(
            name, num_classes=4, **options
        )
        return model

    return make


def _mixer() -> nn.Module:
    model: nn.Module = importlib.import_module("timm.models.mlp_mixer").MlpMixer(
        num_classes=4, img_size=32, patch_size=8, num_blocks=1, embed_dim=16
    )
    return model


def _tokens(rows: int) -> torch.Tensor:
    return torch.randint(3, WORDS, (rows, LENGTH))


def _masked(rows: int) -> dict[str, torch.Tensor]:
    lengths = torch.randint(3, LENGTH + 1, (rows, 1))
    return {
        "input_ids": _tokens(rows),
        "attention_mask": (torch.arange(LENGTH) < lengths).long(),
    }


def _sentences(rows: int) -> dict[str, torch.Tensor]:
    return {**_masked(rows), "labels": torch.randint(0, 3, (rows,))}


def _with_targets(rows: int) -> dict[str, torch.Tensor]:
    """Labels that the model does not see."""
    return {**_masked(rows), "target": torch.randint(0, 3, (rows,))}


def _of_logits(output: Any, target: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(output.logits, target)


def _words(rows: int) -> dict[str, torch.Tensor]:
    labels = torch.where(torch.rand(rows, LENGTH) > 0.3, _tokens(rows), -100)
    labels[:, 0] = 3
    return {**_masked(rows), "labels": labels}


def _language(rows: int) -> dict[str, torch.Tensor]:
    tokens = _tokens(rows)
    return {"input_ids": tokens, "labels": tokens.clone()}


def _pictures(size: int) -> Callable[[int], dict[str, torch.Tensor]]:
    return lambda rows: {
        "pixel_values": torch.randn(rows, 3, size, size),
        "labels": torch.randint(0, 3, (rows,)),
    }


def _classified(size: int) -> Callable[[int], Any]:
    return lambda rows: (torch.randn(rows, 3, size, size), torch.randint(0, 4, (rows,)))


def _sounds(rows: int) -> dict[str, torch.Tensor]:
    return {"input_values": torch.randn(rows, 160), "labels": torch.randint(1, 8, (rows, 3))}


def _utterances(rows: int) -> dict[str, torch.Tensor]:
    """Labels that the model does not see."""
    return {
        "input_values": torch.randn(rows, 160),
        "target": torch.randint(1, 8, (rows, 3)),
        "lengths": torch.randint(1, 4, (rows,)),
    }


def _aligned(output: Any, target: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    scores = output.logits.log_softmax(-1).transpose(0, 1)
    frames = torch.full((scores.shape[1],), scores.shape[0])
    return functional.ctc_loss(scores, target, frames, lengths)


def _labelled(model: Callable[[], nn.Module], batch: Callable[[int], Any], **options: Any) -> Entry:
    return Entry(model, batch, None, {"targets": ("labels",)}, **options)


def _image_entry(name: str, size: int, **options: Any) -> Entry:
    return Entry(_timm(name, **options), _classified(size), functional.cross_entropy)


def _adapted() -> nn.Module:
    """GPT-2 with adapters of low rank, of the package peft."""
    peft = importlib.import_module("peft")
    config = peft.LoraConfig(r=2, lora_dropout=0.1, target_modules=["c_attn"], fan_in_fan_out=True)
    model: nn.Module = peft.get_peft_model(_GPT2(), config)
    return model


def _batched_experts() -> nn.Module:
    model: Any = _MOE()
    model.set_experts_implementation("batched_mm")
    adapted: nn.Module = model
    return adapted


_GPT2 = _transformer(
    "GPT2Config:GPT2LMHeadModel",
    vocab_size=WORDS,
    n_embd=WIDTH,
    n_layer=2,
    n_head=2,
    n_positions=16,
    bos_token_id=1,
    eos_token_id=2,
)
_GROUPED: Mapping[str, Any] = {"num_key_value_heads": 1, "head_dim": 8, **_BOUNDARIES}
_MOE = _text(
    "Qwen3MoeConfig:Qwen3MoeForCausalLM",
    **{**_GROUPED, "moe_intermediate_size": 8, "num_experts": 4, "num_experts_per_tok": 2},
)
_DEBERTA = _text(
    "DebertaConfig:DebertaForSequenceClassification",
    relative_attention=True,
    pos_att_type=["c2p", "p2c"],
    num_labels=3,
)
_DEBERTA_V2 = _text(
    "DebertaV2Config:DebertaV2ForSequenceClassification",
    relative_attention=True,
    position_buckets=4,
    norm_rel_ebd="layer_norm",
    share_att_key=True,
    pos_att_type=["p2c", "c2p"],
    num_labels=3,
)
_BOTH_SIDES: Mapping[str, Any] = {
    "vocab_size": WORDS,
    "d_model": WIDTH,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "max_position_embeddings": 16,
    "decoder_start_token_id": 2,
    **_BOUNDARIES,
}


def _pairs(rows: int) -> dict[str, torch.Tensor]:
    return {**_masked(rows), "pixel_values": torch.randn(rows, 3, 16, 16)}


def _clip() -> nn.Module:
    package = importlib.import_module("transformers")
    config = package.CLIPConfig(
        text_config={**_TRANSFORMER, **_BOUNDARIES},
        vision_config=dict(_IMAGE),
        projection_dim=8,
    )
    result: nn.Module = package.CLIPModel(config)
    return result


class Contrasted(nn.Module):
    """CLIP with its own loss."""

    def __init__(self) -> None:
        super().__init__()
        self.model = _clip()

    def forward(self, **batch: torch.Tensor) -> Any:
        return self.model(**batch, return_loss=True).loss


ARCHITECTURES: dict[str, Entry] = {
    "BERT": _labelled(_text("BertConfig:BertForSequenceClassification", num_labels=3), _sentences),
    "BERT, masked words": _labelled(_text("BertConfig:BertForMaskedLM"), _words),
    "DistilBERT": _labelled(
        _transformer(
            "DistilBertConfig:DistilBertForMaskedLM",
            vocab_size=WORDS,
            dim=WIDTH,
            n_layers=2,
            n_heads=2,
            hidden_dim=24,
            max_position_embeddings=16,
        ),
        _words,
    ),
    "RoBERTa, tokens": _labelled(
        _text("RobertaConfig:RobertaForTokenClassification", num_labels=WORDS), _words
    ),
    "ALBERT": _labelled(
        _text(
            "AlbertConfig:AlbertForSequenceClassification",
            embedding_size=8,
            num_labels=3,
            classifier_dropout_prob=0.1,
        ),
        _sentences,
    ),
    "ELECTRA": _labelled(
        _text("ElectraConfig:ElectraForSequenceClassification", embedding_size=8, num_labels=3),
        _sentences,
    ),
    "MPNet": _labelled(
        _text("MPNetConfig:MPNetForSequenceClassification", num_labels=3), _sentences
    ),
    "DeBERTa": Entry(_DEBERTA, _with_targets, _of_logits),
    "DeBERTa-v2": Entry(_DEBERTA_V2, _with_targets, _of_logits),
    "DeBERTa-v2 with its own loss": _labelled(
        _DEBERTA_V2, _sentences, refused="control flow.*leave its labels out.*pass a loss"
    ),
    "DeBERTa-v2 with a convolution": _labelled(
        _text(
            "DebertaV2Config:DebertaV2ForTokenClassification",
            relative_attention=True,
            conv_kernel_size=3,
            num_labels=WORDS,
        ),
        _words,
    ),
    "FNet": _labelled(
        _text("FNetConfig:FNetForSequenceClassification", num_labels=3),
        lambda rows: {"input_ids": _tokens(rows), "labels": torch.randint(0, 3, (rows,))},
    ),
    "XLNet": _labelled(
        _transformer(
            "XLNetConfig:XLNetForSequenceClassification",
            vocab_size=WORDS,
            d_model=WIDTH,
            n_layer=1,
            n_head=2,
            d_inner=24,
            num_labels=3,
        ),
        _sentences,
    ),
    "Funnel": _labelled(
        _transformer(
            "FunnelConfig:FunnelForSequenceClassification",
            vocab_size=WORDS,
            block_sizes=[1, 1],
            num_decoder_layers=1,
            d_model=WIDTH,
            n_head=2,
            d_head=8,
            d_inner=24,
            num_labels=3,
        ),
        _sentences,
    ),
    "ConvBERT": _labelled(
        _text("ConvBertConfig:ConvBertForSequenceClassification", embedding_size=8, num_labels=3),
        _sentences,
    ),
    "Nystromformer": _labelled(
        _text(
            "NystromformerConfig:NystromformerForSequenceClassification",
            segment_means_seq_len=LENGTH,
            num_landmarks=LENGTH,
            num_labels=3,
        ),
        lambda rows: {"input_ids": _tokens(rows), "labels": torch.randint(0, 3, (rows,))},
    ),
    "Longformer": _labelled(
        _text(
            "LongformerConfig:LongformerForSequenceClassification",
            attention_window=[4, 4],
            num_labels=3,
        ),
        _sentences,
        refused="control flow that depends on data.*torch.where",
    ),
    "GPT-2": _labelled(_GPT2, _language),
    "GPT-2, LoRA": _labelled(_adapted, _language),
    "GPT-Neo": _labelled(
        _transformer(
            "GPTNeoConfig:GPTNeoForCausalLM",
            vocab_size=WORDS,
            hidden_size=WIDTH,
            num_layers=2,
            num_heads=2,
            attention_types=[[["global", "local"], 1]],
            window_size=3,
            max_position_embeddings=16,
            **_BOUNDARIES,
        ),
        _language,
    ),
    "GPT-NeoX": _labelled(_text("GPTNeoXConfig:GPTNeoXForCausalLM", **_BOUNDARIES), _language),
    "OPT": _labelled(
        _text("OPTConfig:OPTForCausalLM", ffn_dim=24, word_embed_proj_dim=WIDTH, **_BOUNDARIES),
        _words,
    ),
    "BLOOM": _labelled(
        _transformer(
            "BloomConfig:BloomForCausalLM",
            vocab_size=WORDS,
            hidden_size=WIDTH,
            n_layer=2,
            n_head=2,
            **_BOUNDARIES,
        ),
        _words,
    ),
    "Falcon": _labelled(_text("FalconConfig:FalconForCausalLM", **_BOUNDARIES), _language),
    "Llama": _labelled(_text("LlamaConfig:LlamaForCausalLM", **_GROUPED), _words),
    "Mistral": _labelled(
        _text("MistralConfig:MistralForCausalLM", sliding_window=3, **_GROUPED), _words
    ),
    "Qwen3": _labelled(_text("Qwen3Config:Qwen3ForCausalLM", **_GROUPED), _words),
    "Qwen3-MoE": _labelled(_MOE, _language),
    "Qwen3-MoE, batched products": _labelled(_batched_experts, _language),
    "Gemma 2": _labelled(_text("Gemma2Config:Gemma2ForCausalLM", **_GROUPED), _language),
    "Phi-3": _labelled(
        _text("Phi3Config:Phi3ForCausalLM", num_key_value_heads=1, **_BOUNDARIES), _language
    ),
    "Mamba": _labelled(
        _transformer(
            "MambaConfig:MambaForCausalLM",
            vocab_size=WORDS,
            hidden_size=WIDTH,
            num_hidden_layers=1,
            state_size=4,
            **_BOUNDARIES,
        ),
        _language,
    ),
    "T5": _labelled(
        _transformer(
            "T5Config:T5ForConditionalGeneration",
            vocab_size=WORDS,
            d_model=WIDTH,
            d_kv=8,
            d_ff=24,
            num_layers=1,
            num_heads=2,
            decoder_start_token_id=0,
        ),
        _words,
    ),
    "BART": _labelled(
        _transformer("BartConfig:BartForConditionalGeneration", **_BOTH_SIDES), _words
    ),
    "Marian": _labelled(_transformer("MarianConfig:MarianMTModel", **_BOTH_SIDES), _words),
    "Whisper": _labelled(
        _transformer(
            "WhisperConfig:WhisperForConditionalGeneration",
            **{**_BOTH_SIDES, "max_source_positions": 8, "max_target_positions": 16},
            num_mel_bins=8,
        ),
        lambda rows: {"input_features": torch.randn(rows, 8, 16), "labels": _tokens(rows)},
    ),
    "Wav2Vec2": Entry(
        _transformer("Wav2Vec2Config:Wav2Vec2ForCTC", **_SPEECH), _utterances, _aligned
    ),
    "Wav2Vec2 with its own loss": _labelled(
        _transformer("Wav2Vec2Config:Wav2Vec2ForCTC", **_SPEECH),
        _sounds,
        refused="control flow.*leave its labels out.*pass a loss",
    ),
    "Wav2Vec2 with masks of time": _labelled(
        _transformer(
            "Wav2Vec2Config:Wav2Vec2ForCTC",
            **{**_SPEECH, "mask_time_prob": 0.2, "mask_time_length": 2},
        ),
        _sounds,
        refused="numpy.random",
    ),
    "HuBERT": Entry(_transformer("HubertConfig:HubertForCTC", **_SPEECH), _utterances, _aligned),
    "ViT": _labelled(
        _transformer("ViTConfig:ViTForImageClassification", **_IMAGE, num_labels=3), _pictures(16)
    ),
    "DeiT": _labelled(
        _transformer("DeiTConfig:DeiTForImageClassification", **_IMAGE, num_labels=3),
        _pictures(16),
    ),
    "ViT-MAE": Entry(
        _transformer(
            "ViTMAEConfig:ViTMAEForPreTraining",
            **_IMAGE,
            decoder_hidden_size=WIDTH,
            decoder_num_hidden_layers=1,
            decoder_num_attention_heads=2,
            decoder_intermediate_size=24,
        ),
        lambda rows: {"pixel_values": torch.randn(rows, 3, 16, 16)},
        None,
    ),
    "DINOv2": _labelled(
        _transformer(
            "Dinov2Config:Dinov2ForImageClassification",
            **{**_IMAGE, "image_size": 16, "mlp_ratio": 2},
            num_labels=3,
        ),
        _pictures(16),
    ),
    "Swin": _labelled(
        _transformer(
            "SwinConfig:SwinForImageClassification",
            image_size=16,
            patch_size=2,
            embed_dim=8,
            depths=[2, 2],
            num_heads=[2, 2],
            window_size=4,
            num_labels=3,
        ),
        _pictures(16),
    ),
    "SegFormer": _labelled(
        _transformer(
            "SegformerConfig:SegformerForSemanticSegmentation",
            hidden_sizes=[8, 8, 16, 16],
            depths=[1, 1, 1, 1],
            num_attention_heads=[1, 1, 2, 2],
            decoder_hidden_size=8,
            num_labels=3,
        ),
        lambda rows: {
            "pixel_values": torch.randn(rows, 3, 32, 32),
            "labels": torch.randint(0, 3, (rows, 32, 32)),
        },
    ),
    "CLIP": Entry(Contrasted, _pairs, None),
    "PatchTST": Entry(
        _transformer(
            "PatchTSTConfig:PatchTSTForPrediction",
            num_input_channels=2,
            context_length=16,
            patch_length=4,
            patch_stride=4,
            prediction_length=4,
            d_model=WIDTH,
            num_hidden_layers=1,
            num_attention_heads=2,
            ffn_dim=24,
        ),
        lambda rows: {
            "past_values": torch.randn(rows, 16, 2),
            "future_values": torch.randn(rows, 4, 2),
        },
        None,
        {"targets": ("future_values",)},
    ),
    "ConvNeXt-V2": _image_entry("convnextv2_atto", 32, depths=(1, 1, 1, 1), dims=(8, 8, 16, 16)),
    "Swin of timm": _image_entry(
        "swin_tiny_patch4_window7_224",
        32,
        img_size=32,
        embed_dim=8,
        depths=(2, 1),
        num_heads=(2, 2),
        window_size=4,
    ),
    "EdgeNeXt": _image_entry(
        "edgenext_xx_small", 32, depths=(1, 1, 1, 1), dims=(8, 16, 24, 32), heads=(2, 2, 2, 2)
    ),
    "MobileNet-V3": _image_entry("mobilenetv3_small_050", 32, drop_rate=0.2),
    "LCNet": _image_entry("lcnet_050", 32),
    "ResNet-10-T": _image_entry("resnet10t", 32),
    "XCiT": _image_entry(
        "xcit_nano_12_p16_224", 32, img_size=32, depth=1, embed_dim=16, num_heads=2
    ),
    "Mixer": Entry(_mixer, _classified(32), functional.cross_entropy),
}
"""Entries by the name of the architecture."""
