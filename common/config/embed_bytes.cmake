# Writes a C++ source that holds a file's bytes:
#   cmake -DINPUT=file -DOUTPUT=file.cc -DFUNCTION=JobDescriptorSetBytes -P embed_bytes.cmake
file(READ ${INPUT} hex HEX)
string(LENGTH "${hex}" length)
math(EXPR bytes "${length} / 2")
string(REGEX REPLACE "(..)" "0x\\1," body "${hex}")
file(WRITE ${OUTPUT} "#include <string_view>
namespace sluice {
std::string_view ${FUNCTION}() {
  static constexpr unsigned char kBytes[] = {${body}};
  return {reinterpret_cast<const char*>(kBytes), ${bytes}};
}
}  // namespace sluice
")
