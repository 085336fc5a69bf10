// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "cli/output/explanation.h"
#include "cli/output/shown.h"
#include "cli/verbs/node_look.h"
#include "cli/verbs/verbs.h"

namespace ferry::cli {
ExitStatus explain_verb(const Session& session, const std::string& word) {
  const auto inputs = read_explain_inputs(session);
  if (!inputs) return complain(inputs.error());
  const auto subject = find_subject(*inputs, word);
  if (!subject) return complain(subject.error());
  VerbOutput shown;
  if (is_text(session.output)) {
    shown.text = explanation_text(explanation_of(*inputs, *subject), text_output(session));
    shown.tinted = true;
  } else {
    shown.document = to_json(*inputs, *subject);
  }
  return print(session, shown);
}

}  // namespace ferry::cli
