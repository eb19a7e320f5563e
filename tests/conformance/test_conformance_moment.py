"""Reading one moment of a log over many pages, while it grows."""

from log_support import make

from gossiplog.replica.reader import PAGE


async def test_pages_of_one_moment_leave_out_a_branch_that_arrives_between_them(open_log) -> None:
    trunk = [make(0)]
    for number in range(1, 3 * PAGE):
        trunk.append(make(number, [trunk[-1]]))
    # It begins where reading has been already, and ends where it has not.
    branch = [make("branch", [trunk[PAGE // 2]])]
    while branch[-1].clock < 2 * PAGE:
        branch.append(make("branch", [branch[-1]]))
    async with open_log() as log:
        await log.insert_many([entry.value for entry in trunk])
        moment = await log.moment()
        assert (moment.count, moment.heads) == (len(trunk), (trunk[-1].key,))
        seen = []
        async for entry in log.iterate(moment=moment):
            seen.append(entry.key)
            if len(seen) == PAGE + 1:
                await log.insert_many([entry.value for entry in branch])
        assert seen == [entry.key for entry in trunk]
        assert [entry.key async for entry in log.iterate(moment=moment, reverse=True, limit=5)] == seen[:-6:-1]
        assert await log.count() == len(trunk) + len(branch)
        assert len([entry async for entry in log.iterate()]) == len(trunk) + len(branch)
