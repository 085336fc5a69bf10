// SPDX-License-Identifier: Apache-2.0
#include "host/usage/process_facts.h"
#include "hostfs/processes.h"
#include "tests/fuzz/fuzz.h"

// A command line and a control group: what a process writes of itself.
void ferry::fuzz::one_input(std::string_view text) {
  const auto name = host::vm_name(text);
  require(!name || name->size() <= text.size(), "a name stands on the command line");
  const std::string uid = pod_uid(text);
  require(uid.empty() || uid.size() == 36 || uid.size() == 32, "a pod's UID has the API's form");
  const std::string service = host::service_of(text);
  require(service.empty() || (service.ends_with(".service") && text.find(service) != std::string_view::npos),
          "a service stands in the control group");
  require(service.empty() || service.find_first_of("/ \n") == std::string::npos, "a service is one name");
}
