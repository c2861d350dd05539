// Products whose right factor is stored in eight bits, with one step for each of its columns: half of the memory that
// bfloat16 takes. What multiplies it, and in which order it lies, is up to the processor.
#pragma once

#include "gemm.h"
#include "int8_expanded.h"
#include "vnni_product.h"

namespace grrm {

// Matrices that were not laid out are multiplied in bfloat16.
inline Blas int8_blas() {
  if (has_vnni()) return {bf16_sgemm, vnni_pack_bytes, vnni_pack, vnni_packed};
  return {bf16_sgemm, expanded_pack_bytes, expanded_pack, expanded_packed};
}

}  // namespace grrm
