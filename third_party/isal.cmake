# ISA-L (BSD-3-Clause), where the system has it: gunzips a log of 2 GB in 3.4 s of CPU time, zlib in 9.4. Packages that
# must run without it take zlib. HEADROOM_GUNZIP is the library that gunzips.
option(HEADROOM_ISAL "Gunzip with ISA-L where it is installed" ON)
find_path(HEADROOM_ISAL_INCLUDE isa-l/igzip_lib.h)
find_library(HEADROOM_ISAL_LIBRARY isal)
mark_as_advanced(HEADROOM_ISAL_INCLUDE HEADROOM_ISAL_LIBRARY)
set(HEADROOM_GUNZIP ZLIB::ZLIB)
if(HEADROOM_ISAL AND HEADROOM_ISAL_INCLUDE AND HEADROOM_ISAL_LIBRARY AND NOT HEADROOM_PORTABLE)
  add_library(ISAL::ISAL UNKNOWN IMPORTED)
  set_target_properties(ISAL::ISAL PROPERTIES
    IMPORTED_LOCATION ${HEADROOM_ISAL_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${HEADROOM_ISAL_INCLUDE}
    INTERFACE_COMPILE_DEFINITIONS HEADROOM_HAS_ISAL)
  set(HEADROOM_GUNZIP ISAL::ISAL)
endif()
