"""Holistic Trace Analysis over a folder of traces: the analyses that `vitrine diagnose` covers as well.

    PYTHONPATH=<HolisticTraceAnalysis> python3 bench/peers/hta_analyse.py FOLDER

Prints seconds of wall and processor time and the peak of memory, of loading and of all.
"""
import resource
import sys
import time


def used():
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return sum(u.ru_utime + u.ru_stime for u in (own, children)), max(own.ru_maxrss, children.ru_maxrss) / 1e6


def main(folder):
    from hta.trace_analysis import TraceAnalysis
    begin = time.time()
    analysis = TraceAnalysis(trace_dir=folder)
    print(f"load  {time.time() - begin:.1f} s wall, {used()[0]:.1f} CPU-s, {used()[1]:.2f} GB")
    breakdown = analysis.get_temporal_breakdown(visualize=False)
    analysis.get_comm_comp_overlap(visualize=False)
    analysis.get_gpu_kernel_breakdown(visualize=False)
    analysis.get_idle_time_breakdown(visualize=False)
    analysis.get_cuda_kernel_launch_stats(visualize=False)
    analysis.get_queue_length_summary()
    print(f"all   {time.time() - begin:.1f} s wall, {used()[0]:.1f} CPU-s, {used()[1]:.2f} GB")
    print(breakdown.to_string())


main(sys.argv[1])
