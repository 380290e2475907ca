#include "engine/tokenizer/char_class.h"

#include <cstdlib>
#include <map>

namespace sluice::engine {
namespace {

struct Run {
  uint32_t last;
  uint16_t classes;
};

constexpr Run kRuns[] = {
#include "engine/tokenizer/char_class_table.inc"
};

}  // namespace

CharClassTable::CharClassTable() {
  std::map<std::array<uint16_t, 256>, uint16_t> known;
  const Run* run = kRuns;
  for (uint32_t block = 0; block < block_of_.size(); ++block) {
    std::array<uint16_t, 256> classes;
    for (uint32_t i = 0; i < classes.size(); ++i) {
      const uint32_t code_point = block << 8 | i;
      while (run->last < code_point) ++run;
      classes[i] = run->classes;
    }
    const auto [it, inserted] = known.emplace(classes, static_cast<uint16_t>(known.size()));
    if (inserted) {
      if (known.size() > kMaxBlocks) std::abort();  // the generated table outgrew kMaxBlocks: raise it
      blocks_[it->second] = classes;
    }
    block_of_[block] = it->second;
  }
}

const CharClassTable& CharClassTable::Get() {
  static const CharClassTable* const table = new CharClassTable;
  return *table;
}

}  // namespace sluice::engine
