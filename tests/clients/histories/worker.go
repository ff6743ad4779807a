package main

import (
	"context"
	"fmt"
	"math/rand"
	"time"
)

// Each round has its own records, so that histories stay short. Rounds differ in how long a client waits between two
// operations: blocking queries wait in the calm ones.
const (
	round          = 20 * time.Second
	recordsOfAKind = 3
)

var pauses = []time.Duration{20 * time.Millisecond, 120 * time.Millisecond, 800 * time.Millisecond}

// identity is what a client knows of a record.
type identity struct{ creator, id string }

// worker is a client that does random operations, one after the other.
type worker struct {
	run         *run
	number      int
	random      *rand.Rand
	connections []*connection
	server      int
	// seen has the last known identity of each record.
	seen map[string]identity
	// last has the last index of each path and server, for blocking queries.
	last map[string]uint64
	made int
	log  []operation
}

func newWorker(run *run, number int) *worker {
	work := &worker{
		run: run, number: number, random: rand.New(rand.NewSource(run.seed + int64(number))),
		server: number % len(run.servers), seen: map[string]identity{}, last: map[string]uint64{},
	}
	for server := range run.servers {
		work.connections = append(work.connections, newConnection(run, server))
	}
	return work
}

// change does operations until the end of the run.
func (work *worker) change(ctx context.Context) {
	for ctx.Err() == nil {
		one := work.step()
		pause := pauses[work.round()%len(pauses)]
		if one.Outcome == failed {
			pause = 200 * time.Millisecond
		}
		sleep(ctx, time.Duration(work.random.Int63n(int64(2*pause))))
	}
}

// watch does blocking queries until the end of the run, which ends the last one.
func (work *worker) watch(ctx context.Context) {
	waits := []time.Duration{time.Second, 5 * time.Second, 20 * time.Second, time.Minute}
	for ctx.Err() == nil {
		its, record := work.pick()
		action, path := read, work.readPath(its, record)
		if work.random.Intn(4) == 0 {
			action, path, record = list, its.list, ""
		}
		// A few queries in a row for the same record: the second one waits.
		for query := 0; query < 8 && ctx.Err() == nil; query++ {
			one := operation{Kind: its.name, Record: record, Action: action, Path: path, Since: work.last[path]}
			one.Wait = int64(waits[work.random.Intn(len(waits))])
			limit := time.Duration(one.Wait)*17/16 + work.run.limit
			bounded, stop := context.WithTimeout(ctx, limit)
			one, found := work.connections[work.server].get(bounded, its, one)
			stop()
			work.learn(its, found, one)
			work.last[path] = max(work.last[path], one.Index)
			work.add(one)
			if one.Outcome == failed {
				sleep(ctx, 200*time.Millisecond)
			}
		}
		work.move()
	}
}

// step does one random operation.
func (work *worker) step() operation {
	work.move()
	its, record := work.pick()
	limit := work.run.limit
	if work.random.Intn(20) == 0 {
		limit = time.Second
	}
	// The end of the run does not end it.
	ctx, stop := context.WithTimeout(context.Background(), limit)
	defer stop()
	to, known := work.connections[work.server], work.seen[record]
	one := operation{Kind: its.name, Record: record, Path: work.readPath(its, record)}
	var found []shown
	switch chance := work.random.Intn(100); {
	case chance < 22:
		one, found = work.create(ctx, its, one)
	case chance < 44 && known.id != "":
		one.Action, one.Written, one.Path = update, work.unique(), its.path+"/"+known.id
		one.Target = target(its, known)
		var after shown
		one, after = to.change(ctx, its, one, its.body(record, known.creator, one.Written, false))
		found = []shown{after}
	case chance >= 44 && chance < 57 && known.id != "":
		one.Action, one.Path, one.Target = remove, its.path+"/"+known.id, target(its, known)
		one, _ = to.change(ctx, its, one, nil)
	case chance >= 57 && chance < 67 && its.name == "token" && known.creator != "":
		one.Action, one.Path, one.Target = useSecret, its.path+"/self", known.creator
		one = to.self(ctx, its, one)
	case chance >= 67 && chance < 71:
		one.Action, one.Path, one.Record = list, its.list, ""
		one, found = to.get(ctx, its, one)
	default:
		one.Action, one.Stale = read, work.random.Intn(8) == 0
		if its.hasServerID() && known.id != "" && work.random.Intn(2) == 0 {
			one.Path, one.Target = its.path+"/"+known.id, target(its, known)
		}
		one, found = to.get(ctx, its, one)
	}
	work.learn(its, found, one)
	work.add(one)
	return one
}

func (work *worker) create(ctx context.Context, its kind, one operation) (operation, []shown) {
	one.Action, one.Written, one.Path = create, work.unique(), its.path
	work.run.known.addToken(one.Record, one.Written)
	one, found := work.connections[work.server].change(ctx, its, one, its.body(one.Record, one.Written, one.Written, true))
	return one, []shown{found}
}

// target is the creator that an operation with the id of the record means; the ids of other kinds mean any.
func target(its kind, known identity) string {
	if its.hasServerID() {
		return known.creator
	}
	return ""
}

// learn records what a response shows of the identities of records.
func (work *worker) learn(its kind, found []shown, one operation) {
	for _, each := range found {
		record := its.record(each, work.run.known)
		if record == "" || one.Outcome != done {
			continue
		}
		version := its.version(each, work.run.known)
		id := record
		if its.hasServerID() {
			id = each.ID
			work.run.known.addID(version.Creator, id, one)
		} else if its.name == "token" {
			id = each.AccessorID
		}
		work.seen[record] = identity{version.Creator, id}
	}
}

// pick chooses a record of this round.
func (work *worker) pick() (kind, string) {
	all := 0
	for _, its := range kinds {
		all += its.share
	}
	chance := work.random.Intn(all)
	for _, its := range kinds {
		if chance -= its.share; chance < 0 {
			return its, fmt.Sprintf("%s-%d-%d", its.name, work.round(), work.random.Intn(recordsOfAKind))
		}
	}
	panic("shares")
}

func (work *worker) round() int { return int(time.Since(work.run.start) / round) }

// readPath of a record by a name that does not change.
func (work *worker) readPath(its kind, record string) string {
	switch {
	case its.hasServerID():
		return its.byName + record
	case its.name == "token":
		return its.path + "/" + uuid(record)
	default:
		return its.path + "/" + record
	}
}

// move goes to another server, now and then.
func (work *worker) move() {
	if work.random.Intn(10) == 0 {
		work.server = work.random.Intn(len(work.connections))
	}
}

// unique returns a value that no other operation writes.
func (work *worker) unique() string {
	work.made++
	return fmt.Sprintf("c%d.%d", work.number, work.made)
}

func (work *worker) add(one operation) {
	one.Client = work.number
	work.log = append(work.log, one)
}

func sleep(ctx context.Context, pause time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(pause):
	}
}
