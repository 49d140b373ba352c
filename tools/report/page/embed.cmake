# Writes page.html, with page.css and the scripts inside, as a C++ source. Run by the build:
# cmake -DFOLDER=... -DSCRIPTS=... -DOUTPUT=... -P embed.cmake
file(READ ${FOLDER}/page.html page)
file(READ ${FOLDER}/page.css css)
set(js "")
foreach(script IN LISTS SCRIPTS)
  file(READ ${FOLDER}/${script} text)
  string(APPEND js "${text}")
endforeach()
string(REPLACE "@CSS@" "${css}" page "${page}")
string(REPLACE "@JS@" "${js}" page "${page}")
string(FIND "${page}" "@DATA@" at)
math(EXPR after "${at} + 6")
string(SUBSTRING "${page}" 0 ${at} before)
string(SUBSTRING "${page}" ${after} -1 after)
file(WRITE ${OUTPUT} "#include \"tools/report/views.h\"\n
namespace headroom::report {\n
const std::string_view kPageBeforeData = R\"PAGE(${before})PAGE\";\nconst std::string_view kPageAfterData = R\"PAGE(${after})PAGE\";\n
}  // namespace headroom::report\n")
