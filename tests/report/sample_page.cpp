// Writes the page of the hand-made job, for the tests in a browser: sample_page OUT.html
#include <cstdio>

#include "report/sample_job.h"

int main(int count, char** arguments) {
  if (count != 2) {
    std::fprintf(stderr, "usage: sample_page OUT.html\n");
    return 2;
  }
  const vitrine::SampleJob sample;
  vitrine::write_report(sample.input(), arguments[1]);
  return 0;
}
