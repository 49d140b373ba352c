# Writes the rules files as a C++ source, each up to its examples. Run by the build:
# cmake "-DFILES=..." -DOUTPUT=... -P embed_rules.cmake
set(rows "")
foreach(file IN LISTS FILES)
  file(READ ${file} text)
  string(FIND "${text}" "\n===" end)
  string(SUBSTRING "${text}" 0 ${end} text)
  get_filename_component(name ${file} NAME)
  string(APPEND rows "    {\"${name}\", R\"RULES(${text})RULES\"sv},\n")
endforeach()
file(WRITE ${OUTPUT} "#include \"tools/explain/rules.h\"\n
namespace headroom::explain {\n
std::span<const RulesFile> built_in_files() {
  using namespace std::string_view_literals;  // a compiler may refuse to count so many characters
  static constexpr RulesFile kFiles[] = {\n${rows}  };
  return kFiles;
}\n
}  // namespace headroom::explain\n")
