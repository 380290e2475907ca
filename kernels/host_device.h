// A mark for functions that both compilers build: ordinary code, and device code where nvcc reads them.
#pragma once

#ifdef __CUDACC__
#define SLUICE_HOST_DEVICE __host__ __device__
#else
#define SLUICE_HOST_DEVICE
#endif
