// What the GPU of compute capability 9.0 has for products, one instruction a function: barriers in shared memory,
// copies of tiles by the tensor memory accelerator, and products of a warpgroup. Names and rules: PTX ISA 8.x,
// chapters 9.7.9 (cp.async.bulk.tensor), 9.7.13 (mbarrier) and 9.7.15 (wgmma).
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace sluice::kernels::cuda::hopper {

__device__ __forceinline__ uint32_t SharedAddress(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// --- Barriers. A phase ends when all its arrivals and all its expected bytes have come. Arrivals and waits order no
// memory over the block's end: what they guard is moved by copies and read by products, both of which they order by
// themselves. (Asked for the cluster's scope they become barriers of the whole GPU, which halves a product's speed.)
// ---

__device__ __forceinline__ void InitBarrier(uint64_t* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(SharedAddress(barrier)), "r"(arrivals));
}
// After the last InitBarrier, before the cluster meets.
__device__ __forceinline__ void PublishBarriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

// Arrives, and announces bytes that copies will bring.
__device__ __forceinline__ void ArriveExpecting(uint64_t* barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(SharedAddress(barrier)), "r"(bytes)
               : "memory");
}
// At the same barrier of the cluster's block `rank`.
__device__ __forceinline__ void ArriveAt(uint64_t* barrier, uint32_t rank) {
  asm volatile(
      "{\n"
      ".reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
      "}" ::"r"(SharedAddress(barrier)),
      "r"(rank)
      : "memory");
}
// Until the phase of this parity has ended.
__device__ __forceinline__ void Wait(uint64_t* barrier, uint32_t parity) {
  uint32_t ended;
  do {
    asm volatile(
        "{\n"
        ".reg .pred ended;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 ended, [%1], %2;\n"
        "selp.u32 %0, 1, 0, ended;\n"
        "}"
        : "=r"(ended)
        : "r"(SharedAddress(barrier)), "r"(parity)
        : "memory");
  } while (ended == 0);
}

// All threads of all blocks of the cluster.
__device__ __forceinline__ void MeetCluster() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ __forceinline__ uint32_t RankInCluster() {
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// --- Copies of tiles. `x` counts elements of a row, `y` rows; what lies outside of the tensor reads as zeros. ---

__device__ __forceinline__ void LoadTile(void* to, const CUtensorMap& map, int x, int y, uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
          SharedAddress(to)),
      "l"(&map), "r"(x), "r"(y), "r"(SharedAddress(barrier))
      : "memory");
}
// To the same place of every block in `ranks`, a bit a block; each one's barrier is told.
__device__ __forceinline__ void LoadTileForAll(void* to, const CUtensorMap& map, int x, int y, uint64_t* barrier,
                                               uint16_t ranks) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, "
      "%3}], [%4], %5;" ::"r"(SharedAddress(to)),
      "l"(&map), "r"(x), "r"(y), "r"(SharedAddress(barrier)), "h"(ranks)
      : "memory");
}

// --- Products of a warpgroup ---

// A tile of 64 bf16 (128 bytes) a row whose 16-byte pieces are swizzled over 8 rows; K lies along the row.
__device__ __forceinline__ uint64_t OperandOf(const void* tile) {
  return static_cast<uint64_t>((SharedAddress(tile) & 0x3FFFF) >> 4) | uint64_t{1} << 16 |
         static_cast<uint64_t>(1024 >> 4) << 32 | uint64_t{1} << 62;
}
// The operand `k` elements further along the row, k < 64 and a multiple of 16.
__device__ __forceinline__ uint64_t Along(uint64_t operand, int k) { return operand + static_cast<uint64_t>(k / 8); }

// The sums of a 64 x 256 tile. Thread t of the warpgroup, its lane l, has in sums[4 j + 2 h + e] row
// 16 (t / 32) + l / 4 + 8 h and column 8 j + 2 (l % 4) + e.
inline constexpr int kSums = 128;

// The compiler may not move what it does with the sums over this.
__device__ __forceinline__ void PinSums(float (&sums)[kSums]) {
#pragma unroll
  for (int i = 0; i < kSums; ++i) asm volatile("" : "+f"(sums[i])::"memory");
}
__device__ __forceinline__ void BeginProducts() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void CommitProducts() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Until at most kGroups of the committed groups still run.
template <int kGroups>
__device__ __forceinline__ void WaitForProducts() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kGroups) : "memory");
}

// sums (+)= a [64, 16] b [256, 16]^T. `adds`: 0 overwrites.
__device__ __forceinline__ void Product(float (&sums)[kSums], uint64_t a, uint64_t b, int adds) {
#define SLUICE_SUMS_8(i)                                                                                        \
  "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3]), "+f"(sums[i + 4]), "+f"(sums[i + 5]), \
      "+f"(sums[i + 6]), "+f"(sums[i + 7])
#define SLUICE_SUMS_32(i) SLUICE_SUMS_8(i), SLUICE_SUMS_8(i + 8), SLUICE_SUMS_8(i + 16), SLUICE_SUMS_8(i + 24)
  asm volatile(
      "{\n"
      ".reg .pred adds;\n"
      "setp.ne.b32 adds, %130, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
      "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
      "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
      "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
      "}, %128, %129, adds, 1, 1, 0, 0;\n"
      "}"
      : SLUICE_SUMS_32(0), SLUICE_SUMS_32(32), SLUICE_SUMS_32(64), SLUICE_SUMS_32(96)
      : "l"(a), "l"(b), "r"(adds));
#undef SLUICE_SUMS_8
#undef SLUICE_SUMS_32
}

// Four 8 x 8 matrices of bf16 to shared memory: lane l gives the place of row l % 8 of matrix l / 8.
__device__ __forceinline__ void StoreMatrices(void* row, const uint32_t (&values)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [%0], {%1, %2, %3, %4};" ::"r"(SharedAddress(row)),
               "r"(values[0]), "r"(values[1]), "r"(values[2]), "r"(values[3])
               : "memory");
}

template <int kRegisters>
__device__ __forceinline__ void GiveRegisters() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void TakeRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace sluice::kernels::cuda::hopper
