// What is known of a finished file: the unit that writers return and that manifests list.
#pragma once

#include <cstdint>
#include <string>

namespace sluice::engine {

struct FileEntry {
  std::string name;  // without the folder
  uint64_t bytes = 0;
  uint32_t crc32c = 0;  // of the whole contents

  bool operator==(const FileEntry&) const = default;
};

}  // namespace sluice::engine
