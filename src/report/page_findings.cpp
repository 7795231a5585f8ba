// Findings, stragglers and outlier steps with the places to jump to.
#include <limits>

#include "report/page_parts.h"

namespace vitrine {

namespace {

Json evidence_json(const Evidence& evidence, const PageClock& clock) {
  Json out = {{"text", evidence.text}, {"rank", evidence.rank}, {"step", evidence.step}};
  if (evidence.end_ns > evidence.begin_ns) {
    out["begin"] = clock.at(evidence.rank, evidence.begin_ns);
    out["end"] = clock.at(evidence.rank, evidence.end_ns);
  }
  return out;
}

}  // namespace

Json findings_json(const Diagnosis& diagnosis, const PageClock& clock) {
  Json out = Json::array();
  for (const Finding& finding : diagnosis.findings) {
    Json evidence = Json::array();
    for (const auto& item : finding.evidence) evidence.push_back(evidence_json(item, clock));
    out.push_back({{"rule", finding.rule},
                   {"severity", severity_name(finding.severity)},
                   {"title", finding.title},
                   {"summary", finding.summary},
                   {"cause", finding.cause},
                   {"fix", finding.fix},
                   {"gain", finding.gain},
                   {"ranks", finding.ranks},
                   {"steps", finding.steps},
                   {"cost", finding.cost_ns},
                   {"share", finding.share},
                   {"confidence", finding.confidence},
                   {"evidence", std::move(evidence)}});
  }
  return out;
}

Json stragglers_json(const StragglerFacts& facts) {
  Json rows = Json::array();
  for (const Straggler& straggler : facts.stragglers) {
    rows.push_back({{"rank", straggler.rank},
                    {"steps", straggler.steps},
                    {"of_steps", straggler.of_steps},
                    {"cost", straggler.cost_ns},
                    {"p", straggler.p_value},
                    {"reason", straggler.reason},
                    {"evidence", straggler.evidence},
                    {"more", straggler.more}});
  }
  return {{"tested", facts.tested}, {"note", facts.note}, {"rows", std::move(rows)}};
}

Json outliers_json(const JobFacts& job, const PageClock& clock) {
  Json out = Json::array();
  for (const OutlierStep& outlier : job.outliers) {
    const RankFacts& rank = job.ranks.at(static_cast<size_t>(outlier.rank_index));
    const StepFacts& step = rank.steps.at(static_cast<size_t>(outlier.step_index));
    out.push_back({{"rank", rank.rank},
                   {"step", step.name},
                   {"excess", outlier.excess_ns},
                   {"cause", outlier.cause},
                   {"evidence", outlier.evidence},
                   {"begin", clock.at(rank.rank, step.start_ns)},
                   {"end", clock.at(rank.rank, step.start_ns + step.duration_ns)}});
  }
  return out;
}

}  // namespace vitrine
