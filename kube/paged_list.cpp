// SPDX-License-Identifier: Apache-2.0
#include "kube/paged_list.h"

#include <set>
#include <string>
#include <utility>

#include "common/text/json.h"
#include "kube/api_error.h"

namespace ferry::kube {
namespace {

using nlohmann::json;

tl::unexpected<Error> not_a_list(const Selection& selection, const char* what) {
  return fail(Errc::malformed_host, "list " + selection.text() + ": " + what);
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
      return not_a_list(selection, "the API server's answer has no items");
    if (items->is_array()) {
      for (json& object : *items) {
        json taken = take ? take(std::move(object)) : std::move(object);
        if (!taken.is_null()) out.push_back(std::move(taken));
      }
    }
    std::string next = continues_with(*list);
    if (next.empty()) return out;
    if (!followed.insert(next).second)
      return not_a_list(selection, "the API server's answer continues with itself");
    range.after = std::move(next);
  }
}

}  // namespace

std::string continues_with(const json& list) {
  return text_at(json_at(list, "metadata"), "continue");
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
