# run(COMMAND...) runs a command and sets `out` to its output; ends the test if the command fails.
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE out ERROR_VARIABLE errors)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${ARGN}: ${status}\n${out}\n${errors}")
  endif()
  set(out "${out}" PARENT_SCOPE)
endfunction()
