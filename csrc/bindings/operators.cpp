// The training kernels as operators of Paddle, with their gradients. The C++ kernels compute on the CPU; where
// they were compiled along (GRRM_WITH_CUDA), CUDA kernels compute the scores of tokens on a GPU.
//
// Nothing is computed here; what the arguments mean is told where the kernels are.

#include <paddle/extension.h>

#include "training.h"

#ifdef GRRM_WITH_CUDA
#include "../cuda/c_api.h"
#endif

using paddle::Grad;
using paddle::Tensor;
using Tensors = std::vector<Tensor>;

namespace {

#ifdef GRRM_WITH_CUDA
void* stream_of(const Tensor& x) {
#ifdef PADDLE_WITH_CUDA
  return reinterpret_cast<void*>(x.stream());
#else
  (void)x;
  return nullptr;  // compiled to be checked, on a machine without a GPU's Paddle
#endif
}

void check_launch(const char* name, int status) {
  PD_CHECK(status == 0, name, " could not be launched on the GPU: CUDA error ", status);
}

int is_bf16(const Tensor& x) { return x.dtype() == paddle::DataType::BFLOAT16 ? 1 : 0; }

// Runs launch() for tensors on a GPU, and says whether it has.
template <typename Launch>
bool on_gpu(const char* name, const Tensor& x, Launch launch) {
  if (!x.is_gpu()) return false;
  PD_CHECK(is_bf16(x) || x.dtype() == paddle::DataType::FLOAT32, name, " takes float32 or bfloat16 on a GPU, not ",
           x.dtype());
  check_launch(name, launch());
  return true;
}
#endif

void check_same(const char* name, const Tensor& x, const Tensor& of, const char* which) {
  PD_CHECK(x.shape() == of.shape(), name, ": ", which, " differ in shape");
}

const float* floats(const char* name, const Tensor& x) {
  PD_CHECK(x.is_cpu() && x.dtype() == paddle::DataType::FLOAT32, name, " takes float32 on the CPU, not ", x.dtype(),
           " on ", x.place());
  return x.data<float>();
}

template <typename T>
const T* indices(const char* name, const Tensor& x, paddle::DataType wanted) {
  PD_CHECK(x.dtype() == wanted, name, " takes indices of type ", wanted, ", not ", x.dtype());
  return x.data<T>();
}

const int64_t* longs(const char* name, const Tensor& x) {
  return indices<int64_t>(name, x, paddle::DataType::INT64);
}

// Room for a result of the shape and type of x.
Tensor like(const char* name, const Tensor& x) {
  if (!x.is_gpu()) floats(name, x);
  return paddle::empty(x.shape(), x.dtype(), x.place());
}

Tensor sums_for(const Tensor& x, std::vector<int64_t> shape) {
  return paddle::empty(std::move(shape), paddle::DataType::FLOAT32, x.place());
}

}  // namespace

Tensors RmsNorm(const Tensor& x, const Tensor& weight, float epsilon) {
  constexpr char kName[] = "grrm_rms_norm";
  const int64_t rows = x.shape().at(0), width = x.shape().at(1);
  PD_CHECK(weight.numel() == width, kName, ": a weight of ", weight.numel(), " for rows of ", width);
  Tensor y = like(kName, x), inverse = sums_for(x, {rows});
  grrm_rms_norm(floats(kName, x), floats(kName, weight), y.data<float>(), inverse.data<float>(), rows, width, epsilon);
  return {y, inverse};
}

Tensors RmsNormGrad(const Tensor& x, const Tensor& weight, const Tensor& inverse, const Tensor& grad) {
  constexpr char kName[] = "grrm_rms_norm_grad";
  const int64_t rows = x.shape().at(0), width = x.shape().at(1);
  Tensor dx = like(kName, x), dweight = like(kName, weight);
  grrm_rms_norm_backward(floats(kName, x), floats(kName, weight), floats(kName, inverse), floats(kName, grad),
                         dx.data<float>(), dweight.data<float>(), rows, width);
  return {dx, dweight};
}

Tensors SwiGLU(const Tensor& gate, const Tensor& up) {
  constexpr char kName[] = "grrm_swiglu";
  check_same(kName, gate, up, "gate and up");
  Tensor y = like(kName, gate);
  grrm_swiglu(floats(kName, gate), floats(kName, up), y.data<float>(), gate.numel());
  return {y};
}

Tensors SwiGLUGrad(const Tensor& gate, const Tensor& up, const Tensor& grad) {
  constexpr char kName[] = "grrm_swiglu_grad";
  Tensor dgate = like(kName, gate), dup = like(kName, up);
  grrm_swiglu_backward(floats(kName, gate), floats(kName, up), floats(kName, grad), dgate.data<float>(),
                       dup.data<float>(), gate.numel());
  return {dgate, dup};
}

namespace {

// x [B, T, heads, D] turned by the angles of its tokens' positions, or back.
Tensor turned(const char* name, const Tensor& x, const Tensor& cos, const Tensor& sin, const Tensor& positions,
              float direction) {
  const std::vector<int64_t> shape = x.shape();
  const int64_t rows = shape.at(0) * shape.at(1), heads = shape.at(2), width = shape.at(3);
  PD_CHECK(positions.numel() == rows, name, ": ", positions.numel(), " positions for ", rows, " tokens");
  Tensor y = like(name, x);
  grrm_rotate(floats(name, x), floats(name, cos), floats(name, sin), longs(name, positions), y.data<float>(), rows,
              heads, width, direction);
  return y;
}

}  // namespace

Tensors Rotate(const Tensor& x, const Tensor& cos, const Tensor& sin, const Tensor& positions) {
  return {turned("grrm_rotate", x, cos, sin, positions, 1.0f)};
}

Tensors RotateGrad(const Tensor& cos, const Tensor& sin, const Tensor& positions, const Tensor& grad) {
  return {turned("grrm_rotate_grad", grad, cos, sin, positions, -1.0f)};
}

namespace {

struct AttentionSizes {
  int64_t batch, length, heads, key_heads, width;
};

AttentionSizes sizes_of(const char* name, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& visible) {
  const std::vector<int64_t> of_q = q.shape(), of_k = k.shape();
  check_same(name, k, v, "keys and values");
  PD_CHECK(of_q.size() == 4 && of_k.size() == 4 && of_q[0] == of_k[0] && of_q[1] == of_k[1] && of_q[3] == of_k[3] &&
               of_k[2] > 0 && of_q[2] % of_k[2] == 0,
           name, ": queries and keys do not fit together");
  PD_CHECK(visible.numel() == 3 * of_q[0] * of_q[1], name, ": ranges for ", visible.numel() / 3, " tokens of ",
           of_q[0] * of_q[1]);
  return {of_q[0], of_q[1], of_q[2], of_k[2], of_q[3]};
}

}  // namespace

Tensors Attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& visible) {
  constexpr char kName[] = "grrm_attention";
  const AttentionSizes n = sizes_of(kName, q, k, v, visible);
  const int64_t tokens = n.batch * n.length;
  const auto* ranges = indices<int32_t>(kName, visible, paddle::DataType::INT32);
  Tensor out = like(kName, q), lse = sums_for(q, {n.batch, n.heads, n.length});
  grrm_attention(floats(kName, q), floats(kName, k), floats(kName, v), ranges, ranges + tokens, ranges + 2 * tokens,
                 out.data<float>(), lse.data<float>(), n.batch, n.length, n.heads, n.key_heads, n.width);
  return {out, lse};
}

Tensors AttentionGrad(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& visible, const Tensor& out,
                      const Tensor& lse, const Tensor& grad) {
  constexpr char kName[] = "grrm_attention_grad";
  const AttentionSizes n = sizes_of(kName, q, k, v, visible);
  const int64_t tokens = n.batch * n.length;
  const auto* ranges = indices<int32_t>(kName, visible, paddle::DataType::INT32);
  Tensor dq = like(kName, q), dk = like(kName, k), dv = like(kName, v);
  grrm_attention_backward(floats(kName, q), floats(kName, k), floats(kName, v), ranges, ranges + tokens,
                          ranges + 2 * tokens, floats(kName, out), floats(kName, lse), floats(kName, grad),
                          dq.data<float>(), dk.data<float>(), dv.data<float>(), n.batch, n.length, n.heads,
                          n.key_heads, n.width);
  return {dq, dk, dv};
}

namespace {

// Paddle passes nothing for the gradient of a result that the loss does not depend on.
Tensor or_zeros(const Tensor& gradient, const Tensor& of) {
  return gradient.initialized() ? gradient : paddle::zeros(of.shape(), of.dtype(), of.place());
}

}  // namespace

Tensors ScoreTokens(const Tensor& logits, const Tensor& labels) {
  constexpr char kName[] = "grrm_score_tokens";
  const int64_t rows = logits.shape().at(0), vocab = logits.shape().at(1);
  PD_CHECK(labels.numel() == rows, kName, ": ", labels.numel(), " labels for ", rows, " rows");
  Tensor logprobs = sums_for(logits, {rows}), entropy = sums_for(logits, {rows}), lse = sums_for(logits, {rows});
#ifdef GRRM_WITH_CUDA
  if (on_gpu(kName, logits, [&] {
        return grrm_cuda_score_tokens(is_bf16(logits), logits.data(), longs(kName, labels), logprobs.data<float>(),
                                      entropy.data<float>(), lse.data<float>(), rows, vocab, stream_of(logits));
      }))
    return {logprobs, entropy, lse};
#endif
  grrm_score_tokens(floats(kName, logits), longs(kName, labels), logprobs.data<float>(), entropy.data<float>(),
                    lse.data<float>(), rows, vocab);
  return {logprobs, entropy, lse};
}

Tensors ScoreTokensGrad(const Tensor& logits, const Tensor& labels, const Tensor& entropy, const Tensor& lse,
                        const Tensor& for_logprobs, const Tensor& for_entropy, const Tensor& for_lse) {
  constexpr char kName[] = "grrm_score_tokens_grad";
  const int64_t rows = logits.shape().at(0), vocab = logits.shape().at(1);
  const Tensor of_logprobs = or_zeros(for_logprobs, lse), of_entropy = or_zeros(for_entropy, lse),
               of_lse = or_zeros(for_lse, lse);
  Tensor dlogits = like(kName, logits);
#ifdef GRRM_WITH_CUDA
  if (on_gpu(kName, logits, [&] {
        return grrm_cuda_score_tokens_backward(is_bf16(logits), logits.data(), longs(kName, labels),
                                               entropy.data<float>(), lse.data<float>(), of_logprobs.data<float>(),
                                               of_entropy.data<float>(), of_lse.data<float>(), dlogits.data(), rows,
                                               vocab, stream_of(logits));
      }))
    return {dlogits};
#endif
  grrm_score_tokens_backward(floats(kName, logits), longs(kName, labels), floats(kName, entropy), floats(kName, lse),
                             floats(kName, of_logprobs), floats(kName, of_entropy), floats(kName, of_lse),
                             dlogits.data<float>(), rows, vocab);
  return {dlogits};
}

PD_BUILD_OP(grrm_rms_norm)
    .Inputs({"X", "Weight"})
    .Outputs({"Y", "Inverse"})
    .Attrs({"epsilon: float"})
    .SetKernelFn(PD_KERNEL(RmsNorm));
PD_BUILD_GRAD_OP(grrm_rms_norm)
    .Inputs({"X", "Weight", "Inverse", Grad("Y")})
    .Outputs({Grad("X"), Grad("Weight")})
    .SetKernelFn(PD_KERNEL(RmsNormGrad));

PD_BUILD_OP(grrm_swiglu).Inputs({"Gate", "Up"}).Outputs({"Y"}).SetKernelFn(PD_KERNEL(SwiGLU));
PD_BUILD_GRAD_OP(grrm_swiglu)
    .Inputs({"Gate", "Up", Grad("Y")})
    .Outputs({Grad("Gate"), Grad("Up")})
    .SetKernelFn(PD_KERNEL(SwiGLUGrad));

PD_BUILD_OP(grrm_rotate).Inputs({"X", "Cos", "Sin", "Positions"}).Outputs({"Y"}).SetKernelFn(PD_KERNEL(Rotate));
PD_BUILD_GRAD_OP(grrm_rotate)
    .Inputs({"Cos", "Sin", "Positions", Grad("Y")})
    .Outputs({Grad("X")})
    .SetKernelFn(PD_KERNEL(RotateGrad));

PD_BUILD_OP(grrm_attention)
    .Inputs({"Q", "K", "V", "Visible"})
    .Outputs({"Out", "Lse"})
    .SetKernelFn(PD_KERNEL(Attention));
PD_BUILD_GRAD_OP(grrm_attention)
    .Inputs({"Q", "K", "V", "Visible", "Out", "Lse", Grad("Out")})
    .Outputs({Grad("Q"), Grad("K"), Grad("V")})
    .SetKernelFn(PD_KERNEL(AttentionGrad));

PD_BUILD_OP(grrm_score_tokens)
    .Inputs({"Logits", "Labels"})
    .Outputs({"Logprobs", "Entropy", "Lse"})
    .SetKernelFn(PD_KERNEL(ScoreTokens));
PD_BUILD_GRAD_OP(grrm_score_tokens)
    .Inputs({"Logits", "Labels", "Entropy", "Lse", Grad("Logprobs"), Grad("Entropy"), Grad("Lse")})
    .Outputs({Grad("Logits")})
    .SetKernelFn(PD_KERNEL(ScoreTokensGrad));
