# nlohmann-json 3.10 (MIT): --json output and the header of safetensors files.
find_package(nlohmann_json 3.10 QUIET)
if(NOT nlohmann_json_FOUND)
  set(JSON_BuildTests OFF CACHE INTERNAL "")
  FetchContent_Declare(json GIT_REPOSITORY https://github.com/nlohmann/json.git
                       GIT_TAG 9cca280a4d0ccf0c08f47a99aa71d1b0e52f8d03  # v3.11.3
                       GIT_SHALLOW ON)
  FetchContent_MakeAvailable(json)
endif()
