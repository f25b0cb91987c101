"""Which of Megatron-LM's functional tests the suite cannot describe, in whole or but for their peak."""

from analysis.validate.rows import Row

# By the folder of the test.
_FOLDERS = {
    "bert": "BERT: attends both ways, with a head and losses of its own",
    "t5": "T5: an encoder and a decoder",
    "hybrid": "a hybrid of Mamba and attention",
    "nemotron": "a hybrid of Mamba and attention",
    "multimodal-llava": "a vision encoder before the language model",
    "mimo": "a vision encoder before the language model",
}
# By a part of the name, the first that is found.
_NAMES = {
    "deepseek": "multi-head latent attention",
    "_mla": "multi-head latent attention",
    "grpo": "reinforcement learning: inference engines share the device",
    "muon": "Muon, not AdamW",
    "fp8": "products in FP8",
    "modelopt_distill": "distillation: a teacher beside the model",
    "check_grads": "a test of reruns whose current and peak bytes are the same",
    "cudagraph": "CUDA graphs hold memory pools of their own",
    "15b_8t": "squared ReLU, and the number of GPUs that share the states is not stated",
    "swiglu": "SwiGLU beside LayerNorm, biases and dropout: between the suite's dense families",
    "account_for_embedding": "a pipeline that counts embedding and loss as layers: stages differ",
    "mixtral": "the number of GPUs that share the states is not stated",
}
_EXPERTS = "GELU experts beside LayerNorm and dropout: the suite's mixtures are SwiGLU with RMSNorm"
_FP16 = "fp16: 16-bit gradients and a copy of them in fp32 are no recipe of the suite"
# By a part of the name: what changes the peak and not what is held all the time.
_PEAKS = {
    "cross_entropy_loss_fusion": "the fused cross entropy is no loss of the suite",
    "defer_embedding_wgrad": "the head's products wait for their weights' gradients",
    "tunable_overlap": "micro-batch groups of five keep more of them in flight",
}


def whole_reason(row: Row) -> str:
    """Why nothing of the row can be predicted; empty if something can."""
    folder = row.source_ref.split("/", 1)[0]
    if folder in _FOLDERS:
        return _FOLDERS[folder]
    for part, reason in _NAMES.items():
        if part in row.model:
            return reason
    if "mla_up_proj" in row.ac_detail or ("memory_speed" in row.model and folder == "moe"):
        return "multi-head latent attention"
    if folder == "moe":
        return _EXPERTS
    if row.precision == "fp16":
        return _FP16
    if row.precision != "bf16":
        return f"precision {row.precision}"
    return ""


def peak_reason(row: Row) -> str:
    """Why the peak of the row cannot be predicted although its static bytes can; else empty."""
    return next((reason for part, reason in _PEAKS.items() if part in row.model), "")
