package main

import (
	"fmt"
	"sort"
	"time"
)

// checkOwnWrites checks that a client's reads of a record never show a version older than its own last change.
func checkOwnWrites(all []operation) (anomalies []anomaly, checks int) {
	type key struct {
		client int
		record string
	}
	last := map[key]operation{}
	for _, one := range byCall(all) {
		its := key{one.Client, one.Record}
		if one.isWrite() && one.Outcome == done && one.Modify > 0 {
			last[its] = one
		}
		own, isWritten := last[its]
		if one.Found == nil || one.Stale || !isWritten || one.Call < own.Return {
			continue
		}
		checks++
		if one.Found.Modify < own.Modify {
			text := fmt.Sprintf("%s: client %d has written %d, and then read %d", one.Record, one.Client, own.Modify, one.Found.Modify)
			anomalies = append(anomalies, anomaly{"read your writes", text, []operation{own, one}})
		}
	}
	return anomalies, checks
}

// checkIndexes checks that the index of a path never decreases at a server, over its restarts too, and that it is not lower
// than a change which the server acknowledged before the read. It returns how often another server had a lower index, which is
// allowed.
func checkIndexes(all []operation) (anomalies []anomaly, checks, lower int) {
	type key struct {
		path   string
		server int
	}
	reads, changes := map[string][]operation{}, map[key][]operation{}
	for _, one := range all {
		if one.Modify > 0 {
			changes[key{one.Record, one.Server}] = append(changes[key{one.Record, one.Server}], one)
		}
		if one.Index > 0 && !one.Stale && one.Action != useSecret {
			reads[one.Path] = append(reads[one.Path], one)
		}
	}
	for _, history := range reads {
		// The highest index among the reads that ended before another began.
		ended := append([]operation{}, history...)
		sort.Slice(ended, func(a, b int) bool { return ended[a].Return < ended[b].Return })
		highest, highestOfAll, place := map[key]operation{}, uint64(0), 0
		for _, one := range byCall(history) {
			for ; place < len(ended) && ended[place].Return < one.Call; place++ {
				its := key{one.Path, ended[place].Server}
				if ended[place].Index > highest[its].Index {
					highest[its] = ended[place]
				}
				highestOfAll = max(highestOfAll, ended[place].Index)
			}
			checks++
			if before := highest[key{one.Path, one.Server}]; one.Index < before.Index {
				text := fmt.Sprintf("%s: %d, and later %d", one.Path, before.Index, one.Index)
				anomalies = append(anomalies, anomaly{"monotone indexes", text, []operation{before, one}})
			} else if one.Index < highestOfAll {
				lower++
			}
			for _, change := range changes[key{one.Record, one.Server}] {
				if change.Return < one.Call && one.Index < change.Modify {
					text := fmt.Sprintf("%s: it was changed at %d, the index is %d", one.Path, change.Modify, one.Index)
					anomalies = append(anomalies, anomaly{"index of a read", text, []operation{change, one}})
					break
				}
			}
		}
	}
	return anomalies, checks, lower
}

// checkWakeUps checks that each blocking query returns within `bound` after a change that it waits for, and after its wait. The
// time of faults, and `recovery` after each, does not count.
func checkWakeUps(all []operation, faults []fault, bound, recovery time.Duration) (anomalies []anomaly, counts map[string]int) {
	counts = map[string]int{}
	changes := map[string][]operation{}
	for _, one := range all {
		if one.isWrite() && one.Outcome == done {
			changes[one.Record] = append(changes[one.Record], one)
			changes[one.Kind] = append(changes[one.Kind], one)
		}
	}
	for _, history := range changes {
		sort.Slice(history, func(a, b int) bool { return history[a].Return < history[b].Return })
	}
	late := func(from, to int64) bool {
		return to-from > int64(bound)+lost(faults, from, to, int64(recovery))
	}
	for _, one := range all {
		if one.Since == 0 || one.Wait == 0 {
			continue
		}
		watched := changes[one.Record]
		if one.Action == list {
			watched = changes[one.Kind]
		}
		switch {
		case one.Index > one.Since && one.Return-one.Call > int64(100*time.Millisecond):
			counts["blocking queries that waited for a change"]++
		case one.Index > one.Since:
			counts["blocking queries that had a change at once"]++
		case one.Outcome != failed:
			counts["blocking queries whose wait ended"]++
		}
		// Both the wait and the first change end it.
		due := []operation{{Return: one.Call + one.Wait*17/16}}
		for _, change := range watched {
			// A deletion has no index in its response, but that of a later one is higher than any earlier.
			if change.Modify > one.Since || change.Call > one.Call {
				due = append(due, change)
				break
			}
		}
		for _, event := range due {
			if from := max(event.Return, one.Call); late(from, one.Return) {
				text := fmt.Sprintf("%s: a query returned %s too late", one.Path, time.Duration(one.Return-from))
				anomalies = append(anomalies, anomaly{"wake-ups", text, []operation{event, one}})
				break
			}
		}
	}
	return anomalies, counts
}

// lost returns the time between two moments in which there was a fault or a recovery from one.
func lost(faults []fault, from, to, recovery int64) (total int64) {
	until := from
	for _, one := range faults {
		begin, end := max(one.Begin, until), min(one.End+recovery, to)
		if end > begin {
			total += end - begin
			until = end
		}
	}
	return total
}

// checkStale checks that stale reads show a version that was written, and not before.
func checkStale(all []operation) (anomalies []anomaly, checks int) {
	written := map[string]operation{}
	for _, one := range all {
		if one.Written != "" {
			written[one.Written] = one
		}
	}
	for _, one := range all {
		if !one.Stale || one.Found == nil {
			continue
		}
		checks++
		origin, isThere := written[one.Found.Value]
		if !isThere || origin.Record != one.Record || origin.Call > one.Return || origin.Outcome == failed {
			text := fmt.Sprintf("%s: %q was never written to it, or later", one.Record, one.Found.Value)
			anomalies = append(anomalies, anomaly{"stale reads", text, []operation{origin, one}})
		}
	}
	return anomalies, checks
}

// checkResponses checks that every response has a status that the API documents for it.
func checkResponses(all []operation) (anomalies []anomaly) {
	for _, one := range all {
		isWrong := one.Outcome == failed && one.Status == 200 || one.Status >= 400 && one.Status < 500 && one.Outcome == failed
		if isWrong || one.Outcome == absent && one.Action == create {
			text := fmt.Sprintf("%s %s: %d %s", one.Action, one.Record, one.Status, one.Error)
			anomalies = append(anomalies, anomaly{"responses", text, []operation{one}})
		}
	}
	return anomalies
}

// byCall returns the operations in the order in which they began.
func byCall(all []operation) []operation {
	sorted := append([]operation{}, all...)
	sort.SliceStable(sorted, func(a, b int) bool { return sorted[a].Call < sorted[b].Call })
	return sorted
}
