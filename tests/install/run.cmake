# run(COMMAND...): what it prints is in `out`; ends the test where the command fails.
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE out ERROR_VARIABLE errors)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${ARGN}: ${status}\n${out}\n${errors}")
  endif()
  set(out "${out}" PARENT_SCOPE)
endfunction()
