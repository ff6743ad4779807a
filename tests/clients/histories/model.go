package main

import (
	"fmt"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"
)

// state is a record as the model has it.
type state struct {
	exists, marked bool
	creator, value string
	// modify is the ModifyIndex of the last change; a lower bound of it unless isExact.
	modify  uint64
	isExact bool
}

var model = (&porcupine.NondeterministicModel{
	Init: func() []interface{} { return []interface{}{state{}} },
	Step: func(before, input, _ interface{}) []interface{} {
		var after []interface{}
		for _, state := range next(before.(state), input.(*operation)) {
			after = append(after, state)
		}
		return after
	},
	Equal: func(one, other interface{}) bool { return one.(state) == other.(state) },
	DescribeOperation: func(input, _ interface{}) string {
		one := input.(*operation)
		return fmt.Sprintf("%s %s%s: %s", one.Action, one.Target, one.Written, one.Outcome)
	},
}).ToModel()

// next returns the states that may follow: none if the outcome cannot be.
func next(before state, one *operation) []state {
	// A marked namespace may have been deleted at any time since.
	if before.marked && before.exists {
		gone := before
		gone.exists, gone.marked = false, false
		return append(step(before, one), step(gone, one)...)
	}
	return step(before, one)
}

func step(before state, one *operation) []state {
	isMeant := before.exists && (one.Target == "" || one.Target == before.creator)
	same := []state{before}
	after := before
	switch one.Action {
	case create, update:
		isPossible := isMeant && !before.marked
		after.value = one.Written
		if one.Action == create {
			isPossible = !before.exists
			after.creator = one.Written
			if one.Kind == "namespace" {
				after.creator = ""
			}
		}
		after.exists, after.isExact = true, false
		switch {
		case one.Outcome == unknown && isPossible:
			return []state{after}
		case one.Outcome == unknown:
			return same
		case one.Outcome == conflict && one.Action == create:
			return only(before.exists, before)
		case one.Outcome == conflict:
			return only(before.exists && before.marked, before)
		case one.Outcome == absent:
			return only(one.Action == update && !isMeant, before)
		}
		after.modify, after.isExact = one.Modify, true
		return only(isPossible && one.Modify > before.modify, after)
	case remove:
		after.exists, after.isExact = false, false
		if one.Kind == "namespace" {
			after.exists, after.marked = true, true
		}
		switch {
		case one.Outcome == absent:
			return only(!isMeant, before)
		case !isMeant:
			return only(one.Outcome == unknown, before)
		case before.marked:
			return same
		}
		return []state{after}
	default:
		if one.Outcome == absent {
			return only(!isMeant, before)
		}
		found := one.Found
		after.modify, after.isExact = found.Modify, true
		isRight := isMeant && found.Value == before.value && found.Marked == before.marked
		isRight = isRight && (found.Creator == before.creator || found.Creator == "")
		isRight = isRight && (found.Modify == before.modify || !before.isExact && found.Modify > before.modify)
		return only(isRight, after)
	}
}

func only(isPossible bool, after state) []state {
	if isPossible {
		return []state{after}
	}
	return nil
}

// histories returns what counts of each record, by its name. Stale reads are left out: they may show an older state.
func histories(all []operation) map[string][]operation {
	found := map[string][]operation{}
	observed := map[string]bool{}
	spans := map[string][2]int64{}
	for _, one := range all {
		if one.Outcome == failed || one.Stale || one.Action == list {
			continue
		}
		span, isThere := spans[one.Record]
		if !isThere {
			span = [2]int64{one.Call, one.Call}
		}
		spans[one.Record] = [2]int64{min(span[0], one.Call), max(span[1], one.Call)}
		found[one.Record] = append(found[one.Record], one)
	}
	for _, one := range all {
		if one.Action != list || one.Outcome != done || one.Stale {
			continue
		}
		for record := range found {
			// The list also has records of earlier and later rounds, but no client uses them meanwhile.
			span := spans[record]
			if one.Call < span[0]-int64(round) || one.Call > span[1] || found[record][0].Kind != one.Kind {
				continue
			}
			read := one
			read.Action, read.Record, read.Records, read.Outcome = "read", record, nil, absent
			if its, isThere := one.Records[record]; isThere {
				read.Found, read.Outcome = &its, done
			}
			found[record] = append(found[record], read)
		}
	}
	for _, history := range found {
		for _, one := range history {
			if one.Found != nil {
				observed[one.Found.Value] = true
			}
			if one.Outcome == done {
				observed[one.Written] = true
			}
		}
	}
	for record, history := range found {
		kept := history[:0]
		for _, one := range history {
			// An update that no read and no response has shown explains nothing.
			if one.Action == update && one.Outcome == unknown && !observed[one.Written] {
				continue
			}
			if one.Outcome == unknown {
				one.Return = never
			}
			kept = append(kept, one)
		}
		sort.SliceStable(kept, func(a, b int) bool { return kept[a].Call < kept[b].Call })
		found[record] = kept
	}
	return found
}

// checkLinearizable checks each record separately.
func checkLinearizable(all []operation, limit time.Duration) (anomalies []anomaly, undecided int) {
	for record, history := range histories(all) {
		converted := make([]porcupine.Operation, 0, len(history))
		for place := range history {
			one := &history[place]
			converted = append(converted, porcupine.Operation{ClientId: one.Client, Input: one, Call: one.Call, Return: one.Return})
		}
		switch porcupine.CheckOperationsTimeout(model, converted, limit) {
		case porcupine.Illegal:
			text := fmt.Sprintf("%s: no order of its operations explains their responses", record)
			anomalies = append(anomalies, anomaly{"linearizability", text, history})
		case porcupine.Unknown:
			undecided++
		}
	}
	return anomalies, undecided
}
