// How blocks and lanes share the heads of the packed projection: for the kernels of this folder.
//
// Every element of the packed projection is read once and written once; what a token's heads share (its angles, the
// norms' weights) comes from L1, because a block works on neighbouring heads. The unit of work is a pair of packets: 16
// bytes of a head's first half and the 16 bytes of its second half that they are rotated with. Neighbouring lanes have
// neighbouring pairs, so a group of D / 2 / (values of a packet) lanes has a head; with norms this group is a power of
// two, within a warp, and sums by shuffles. Other head sizes take a path with one warp to a head and no packets.
#pragma once

#include <cstdint>

#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/values.cuh"

namespace sluice::kernels::cuda::rope {

inline constexpr int kThreads = 256;

// The heads of one token, in their packed order: queries, keys, values.
struct Heads {
  int q, kv, dim;

  __host__ __device__ int all() const { return q + 2 * kv; }
};

template <int kWidth>
__device__ __forceinline__ unsigned PairsOfHead(const Heads& heads) {
  return static_cast<unsigned>(heads.dim / 2 / kWidth);
}

// Where a head lies in the arrays of its kind.
enum class Kind : uint8_t { kQuery, kKey, kValue };

struct HeadPlace {
  Kind kind;
  int64_t row;  // in [T * heads of the kind, D]
};

__device__ __forceinline__ HeadPlace PlaceOf(int64_t token, int head, const Heads& heads) {
  if (head < heads.q) return {Kind::kQuery, token * heads.q + head};
  if (head < heads.q + heads.kv) return {Kind::kKey, token * heads.kv + (head - heads.q)};
  return {Kind::kValue, token * heads.kv + (head - heads.q - heads.kv)};
}

template <typename Pointer>
__device__ __forceinline__ Pointer Select(Kind kind, Pointer query, Pointer key, Pointer value) {
  return kind == Kind::kQuery ? query : (kind == Kind::kKey ? key : value);
}

// The pairs of one block, rounds * kThreads neighbours, counted from the first pair of `first_token`: only this token
// takes a 64-bit division.
struct Share {
  int64_t first_token;
  unsigned begin, end;

  __device__ __forceinline__ Share(int rounds, int64_t tokens, unsigned pairs_of_token) {
    const int64_t size = static_cast<int64_t>(rounds) * kThreads;
    const int64_t first_pair = blockIdx.x * size;
    first_token = first_pair / pairs_of_token;
    begin = static_cast<unsigned>(first_pair - first_token * pairs_of_token);
    end = begin + static_cast<unsigned>(min(size, tokens * pairs_of_token - first_pair));
  }
};

// The pair of packets that a thread works on. Lanes beyond the block's last pair get that one, so that all lanes of a
// warp can shuffle, and must not write.
template <int kWidth>
struct Pair {
  int64_t token;
  int head, first;  // `first`: index in the head of the first packet's first value
  bool active;

  __device__ __forceinline__ Pair(unsigned at, const Share& share, const Heads& heads) {
    active = at < share.end;
    if (!active) at = share.end - 1;
    const unsigned pairs_of_head = PairsOfHead<kWidth>(heads);
    const unsigned head_of_share = at / pairs_of_head;
    const unsigned token_of_share = head_of_share / heads.all();
    token = share.first_token + token_of_share;
    head = static_cast<int>(head_of_share - token_of_share * heads.all());
    first = static_cast<int>(at - head_of_share * pairs_of_head) * kWidth;
  }
};

// Sums over groups of `size` neighbouring lanes. REQUIRES: a power of two, at most 32.
__device__ __forceinline__ float GroupSum(float value, int size) {
  for (int offset = size / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(kFullWarp, value, offset);
  return value;
}

// Whether the halves of a head are packets, and with norms also a power-of-two group of lanes of one warp.
inline bool HeadIsPackets(int head_dim, int width, bool norms) {
  if (head_dim % (2 * width) != 0) return false;
  const int group = head_dim / 2 / width;
  return !norms || (group <= 32 && (group & (group - 1)) == 0);
}

inline int64_t RoundsOf(int64_t tokens, const Heads& heads, int width) {
  return CeilDiv(tokens * heads.all() * (heads.dim / 2 / width), kThreads);
}

inline constexpr int kPlainBlocksPerProcessor = 16;

}  // namespace sluice::kernels::cuda::rope
