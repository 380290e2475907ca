#include "common/build_info.h"

namespace sluice {

const char* BuildVersion() { return SLUICE_BUILD_VERSION; }
const char* BuildCommit() { return SLUICE_BUILD_COMMIT; }

}  // namespace sluice
