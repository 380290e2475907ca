#include "engine/bench/kernel_profile.h"

#include <cuda_runtime_api.h>
#include <cupti.h>
#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"

namespace sluice::engine {
namespace {

constexpr size_t kBufferBytes = size_t{8} << 20;

struct Record {
  std::string name;
  uint64_t start, end;  // nanoseconds
};

absl::Mutex mutex;
std::vector<Record>* records ABSL_GUARDED_BY(mutex) = new std::vector<Record>;

std::string Demangled(const char* mangled) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> name(abi::__cxa_demangle(mangled, nullptr, nullptr, &status), std::free);
  std::string text = status == 0 && name != nullptr ? name.get() : mangled;
  // "void ns::Kernel<int, 4>(args)" to "ns::Kernel": one line of the table for all instances.
  if (text.rfind("void ", 0) == 0) text.erase(0, 5);
  for (const std::string_view part :
       {"(anonymous namespace)::", "sluice::kernels::cuda::", "cudnn_generated_fort_native_"}) {
    if (const size_t at = text.find(part); at != std::string::npos) text.erase(at, part.size());
  }
  return text.substr(0, text.find_first_of("<("));
}

void RequestBuffer(uint8_t** buffer, size_t* size, size_t* max_records) {
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(8, kBufferBytes));
  *size = kBufferBytes;
  *max_records = 0;
}

void BufferFull(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid) {
  CUpti_Activity* activity = nullptr;
  absl::MutexLock lock(&mutex);
  while (cuptiActivityGetNextRecord(buffer, valid, &activity) == CUPTI_SUCCESS) {
    if (activity->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL || activity->kind == CUPTI_ACTIVITY_KIND_KERNEL) {
      // The fields used have kept their places over the record's versions.
      const auto* kernel = reinterpret_cast<const CUpti_ActivityKernel9*>(activity);
      records->push_back({Demangled(kernel->name), kernel->start, kernel->end});
    } else if (activity->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
      const auto* copy = reinterpret_cast<const CUpti_ActivityMemcpy5*>(activity);
      records->push_back({absl::StrCat("copy of ", copy->bytes, " bytes"), copy->start, copy->end});
    } else if (activity->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
      const auto* set = reinterpret_cast<const CUpti_ActivityMemset4*>(activity);
      records->push_back({absl::StrCat("memset of ", set->bytes, " bytes"), set->start, set->end});
    }
  }
  std::free(buffer);
}

constexpr CUpti_ActivityKind kKinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                                         CUPTI_ACTIVITY_KIND_MEMSET};

absl::Status Check(CUptiResult result, const char* call) {
  if (result == CUPTI_SUCCESS) return absl::OkStatus();
  const char* text = "unknown error";
  cuptiGetResultString(result, &text);
  return absl::InternalError(absl::StrCat("profile: ", call, ": ", text));
}

// Time in which at least one of some records was running; they are added in the order of their starts.
struct BusyTime {
  double microseconds = 0;
  uint64_t until = 0;

  void Add(const Record& record) {
    if (record.end <= until) return;
    microseconds += static_cast<double>(record.end - std::max(record.start, until)) / 1e3;
    until = record.end;
  }
};

}  // namespace

absl::Status StartKernelProfile() {
  {
    absl::MutexLock lock(&mutex);
    records->clear();
  }
  absl::Status status = Check(cuptiActivityRegisterCallbacks(RequestBuffer, BufferFull), "register");
  for (const CUpti_ActivityKind kind : kKinds) {
    if (status.ok()) status = Check(cuptiActivityEnable(kind), "enable");
  }
  return status;
}

absl::StatusOr<KernelProfile> StopKernelProfile() {
  cudaDeviceSynchronize();
  absl::Status status = Check(cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), "flush");
  for (const CUpti_ActivityKind kind : kKinds) cuptiActivityDisable(kind);
  if (!status.ok()) return status;
  absl::MutexLock lock(&mutex);
  KernelProfile profile;
  std::sort(records->begin(), records->end(), [](const Record& a, const Record& b) { return a.start < b.start; });
  std::map<std::string, KernelTime> by_name;
  BusyTime all, computation;
  for (const Record& record : *records) {
    KernelTime& kernel = by_name[record.name];
    kernel.name = record.name;
    ++kernel.calls;
    const double microseconds = static_cast<double>(record.end - record.start) / 1e3;
    kernel.microseconds += microseconds;
    all.Add(record);
    if (record.name.find("nccl") == std::string::npos) {
      computation.Add(record);
    } else {
      profile.communication_microseconds += microseconds;
    }
  }
  profile.busy_microseconds = all.microseconds;
  profile.exposed_communication_microseconds = all.microseconds - computation.microseconds;
  if (!records->empty()) {
    profile.elapsed_microseconds = static_cast<double>(all.until - records->front().start) / 1e3;
  }
  for (auto& [name, kernel] : by_name) profile.kernels.push_back(kernel);
  std::sort(profile.kernels.begin(), profile.kernels.end(),
            [](const KernelTime& a, const KernelTime& b) { return a.microseconds > b.microseconds; });
  return profile;
}

void PrintKernelProfile(const KernelProfile& profile) {
  std::cerr << absl::StrFormat("%10s %7s %6s  %s\n", "us", "calls", "part", "kernel");
  for (const KernelTime& kernel : profile.kernels) {
    std::cerr << absl::StrFormat("%10.1f %7d %5.1f%%  %s\n", kernel.microseconds, kernel.calls,
                                 100 * kernel.microseconds / profile.elapsed_microseconds, kernel.name);
  }
  std::cerr << absl::StrFormat("%10.1f elapsed, %.1f busy, %.1f idle\n", profile.elapsed_microseconds,
                               profile.busy_microseconds, profile.elapsed_microseconds - profile.busy_microseconds);
  if (profile.communication_microseconds == 0) return;
  std::cerr << absl::StrFormat("%10.1f communication, %.1f of it while nothing else ran\n",
                               profile.communication_microseconds, profile.exposed_communication_microseconds);
}

}  // namespace sluice::engine
