# Writes a page with its style and scripts inside as a C++ source, in two parts: before @DATA@ and after it. Run by the
# build: cmake -DPAGE=... -DSTYLES=... -DSCRIPTS=... -DHEADER=... -DNAMESPACE=... -DOUTPUT=... -P embed.cmake
file(READ ${PAGE} page)
set(css "")
foreach(style IN LISTS STYLES)
  file(READ ${style} text)
  string(APPEND css "${text}")
endforeach()
set(js "")
foreach(script IN LISTS SCRIPTS)
  file(READ ${script} text)
  string(APPEND js "${text}")
endforeach()
string(REPLACE "@CSS@" "${css}" page "${page}")
string(REPLACE "@JS@" "${js}" page "${page}")
string(FIND "${page}" "@DATA@" at)
math(EXPR after "${at} + 6")
string(SUBSTRING "${page}" 0 ${at} before)
string(SUBSTRING "${page}" ${after} -1 after)
file(WRITE ${OUTPUT} "#include \"${HEADER}\"\n
namespace ${NAMESPACE} {\n
const std::string_view kPageBeforeData = R\"PAGE(${before})PAGE\";\nconst std::string_view kPageAfterData = R\"PAGE(${after})PAGE\";\n
}  // namespace ${NAMESPACE}\n")
