#include "tools/explain/faults.h"

#include <algorithm>
#include <iterator>

namespace headroom::explain {
namespace {

// NVIDIA's catalogue of Xid errors.
constexpr Fault kFaults[] = {
    {13, true, "a kernel accessed memory outside its bounds or failed in another way"},
    {31, true, "a kernel accessed an address that is not mapped"},
    {43, true, "the program's work on the GPU was stopped after a fault of its own"},
    {45, true, "the program ended while its work was on the GPU"},
    {68, true, "a video decoder's work failed"},
    {38, false, "the driver's firmware failed"},
    {48, false, "a double-bit error in the GPU's memory, which ECC cannot correct"},
    {54, false, "an auxiliary power cable is not connected"},
    {56, false, "a display engine failed"},
    {61, false, "the GPU's micro-controller stopped"},
    {62, false, "the GPU's micro-controller halted"},
    {63, false, "a page of the GPU's memory is retired, or a row is remapped, after errors of ECC"},
    {64, false, "a page of the GPU's memory could not be retired, or a row not remapped"},
    {74, false, "a link of NVLink failed"},
    {79, false, "the GPU has fallen off the bus: it no longer answers over PCIe (power, heat, seating)"},
    {92, false, "many single-bit errors in the GPU's memory"},
    {94, false, "an error of the GPU's memory that hit one program only (contained)"},
    {95, false, "an error of the GPU's memory that may have hit any program (uncontained)"},
    {109, false, "a context switch timed out"},
    {110, false, "a security fault of the GPU"},
    {119, false, "the GPU's system processor (GSP) does not answer"},
    {120, false, "the GPU's system processor (GSP) failed"},
    {140, false, "errors of ECC that were not corrected"},
    {143, false, "the GPU could not start"},
    {154, false, "the GPU asks for a reset or a reboot"},
};

}  // namespace

const Fault* fault_of(int64_t xid) {
  const auto found =
      std::find_if(std::begin(kFaults), std::end(kFaults), [&](const Fault& row) { return row.xid == xid; });
  return found == std::end(kFaults) ? nullptr : &*found;
}

}  // namespace headroom::explain
