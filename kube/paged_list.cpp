// SPDX-License-Identifier: Apache-2.0
#include "kube/paged_list.h"

#include <set>
#include <string>
#include <utility>

#include "kube/api_error.h"

namespace ferry::kube {
namespace {

using nlohmann::json;

Error not_a_list(const Selection& selection, const char* what) {
  return {.code = make_error_code(Errc::malformed_host),
          .message = "list " + selection.text() + ": " + what,
          .hint = {}};
}

Result<std::vector<json>> one_round(const AskForPart& ask, const Selection& selection,
                                    const TakeOfObject& take) {
  std::vector<json> out;
  ListRange range{.most = kListPart};
  std::set<std::string> followed;
  while (true) {
    auto list = ask(selection, range);
    if (!list && list.error().code == ApiErrc::too_large && range.most > 1) {
      range.most /= 2;
      continue;
    }
    if (!list) return fail(std::move(list).error());
    const auto items = list->is_object() ? list->find("items") : list->end();
    if (items == list->end() || !(items->is_array() || items->is_null()))
      return fail(not_a_list(selection, "the API server's answer has no items"));
    if (items->is_array()) {
      for (json& object : *items) {
        json taken = take ? take(std::move(object)) : std::move(object);
        if (!taken.is_null()) out.push_back(std::move(taken));
      }
    }
    std::string next = continues_with(*list);
    if (next.empty()) return out;
    if (!followed.insert(next).second)
      return fail(not_a_list(selection, "the API server's answer continues with itself"));
    range.after = std::move(next);
  }
}

}  // namespace

std::string continues_with(const json& list) {
  const auto metadata = list.find("metadata");
  if (metadata == list.end() || !metadata->is_object()) return {};
  const auto token = metadata->find("continue");
  return token != metadata->end() && token->is_string() ? token->get<std::string>() : std::string();
}

Result<std::vector<json>> list_by_parts(const AskForPart& ask, const Selection& selection,
                                        const TakeOfObject& take) {
  for (unsigned round = 1;; ++round) {
    auto all = one_round(ask, selection, take);
    const bool forgotten = !all && all.error().code == ApiErrc::expired;
    if (!forgotten || round == kMostListRounds) return all;
  }
}

}  // namespace ferry::kube
