-- Slurm's job_submit plugin: lets jobs whose bandwidth Cotenant has measured ask for bandwidth (a count-only GRES), so
-- that Slurm itself keeps those apart that do not fit together. It rejects no job. Where it knows nothing it changes
-- nothing. What it did and why stands in the job's AdminComment. How to use it: docs/how-to/slurm-bandwidth.md.

-- Settings -----------------------------------------------------------------------------------------------------------

-- What `cotenant-slurm-table merge` writes.
local TABLE = "/run/cotenant/slurm-cluster.tsv"

-- The GRES, as in slurm.conf (GresTypes, Gres=membw:180), and what one of it is, in bytes per second.
local GRES = "membw"
local UNIT = 1e9

-- Partitions in which every node has the GRES, and the least count of any of their nodes. A job in another partition is
-- left alone: it could never start.
local PARTITIONS = {
    -- batch = 180,
}

-- Who uses less than this part of the least node does not ask.
local BOUND = 0.1

-- How many seconds of a workload must have been seen, and the age of a table, in seconds, from which it counts no more.
local SAMPLES = 60
local STALE = 60

-- The table -----------------------------------------------------------------------------------------------------------

local LONGEST = 1048576
local known = {} -- the table that was read last: a job costs one line of it as long as it is the same

local function read_table()
    local file = io.open(TABLE, "r")
    if not file then return nil, "there is no table" end
    local head = file:read(64)
    local time = head and tonumber(head:match("^cotenant%-slurm\t1\t(%d+)\n"))
    local age = time and os.time() - time
    if not time then
        file:close()
        return nil, "the table is malformed in line 1"
    end
    if age > STALE or age < -STALE then
        file:close()
        return nil, string.format("the table is %d s old", age)
    end
    if known.time ~= time then
        file:seek("set")
        local text = file:read(LONGEST + 1)
        known = { time = time }
        if #text > LONGEST then
            known.wrong = "the table is too long"
        else
            local workloads, line = {}, 0
            for row in text:gmatch("([^\n]*)\n") do
                line = line + 1
                local name, counted, bandwidth = row:match(
                    "^workload\t([%w._%-]+)\t%d+\t[%d.]+\t(%d+)\t([%d%-]+)\t%d+$")
                if name then
                    workloads[name] = { counted = tonumber(counted), bandwidth = tonumber(bandwidth) }
                elseif line > 1 and not row:match("^node\t[%w_%-]+\t[%d.%-]+\t[%d.%-]+$") then
                    known.wrong = "the table is malformed in line " .. line
                    break
                end
            end
            if text:sub(-1) ~= "\n" then known.wrong = "the table is cut" end
            known.workloads = workloads
        end
    end
    file:close()
    if known.wrong then return nil, known.wrong end
    return known.workloads
end

-- The job -------------------------------------------------------------------------------------------------------------

-- Users write names and comments: of what is shown, all but letters, digits, dots, hyphens and underscores becomes a
-- hyphen.
local function cleaned(text)
    return (text:sub(1, 63):gsub("[^A-Za-z0-9._%-]", "-"))
end

-- Like the prolog's: no two names become one, and none holds a dot.
local function escaped(text)
    return (text:gsub("[^A-Za-z0-9%-]", function(byte) return string.format("_%02X", byte:byte()) end))
end

-- Like the prolog's: the profile that the comment names, of this user.
local function workload_of(job)
    local wish = tostring(job.comment or ""):sub(1, 256):match("^cotenant:(.*)$")
    local profile = wish and ("," .. wish):match(",profile=([^,]+)")
    if not profile or (job.user_name or "") == "" then return nil end
    local workload = escaped(job.user_name) .. "." .. escaped(profile:sub(1, 63))
    if #workload <= 253 then return workload end
end

-- The least count of the GRES in all partitions that the job may run in.
local function least_node(job, partitions)
    local names, least = job.partition, nil
    if not names or names == "" then
        for name, partition in pairs(partitions) do
            if partition.flag_default == 1 or partition.flag_default == true then names = name end
        end
    end
    for name in tostring(names or ""):gmatch("[^,]+") do
        local count = tonumber(PARTITIONS[name])
        if not count then return nil end
        least = math.min(least or count, count)
    end
    return least
end

local function consider(job, partitions)
    local least = least_node(job, partitions)
    if not least then return nil end -- not a partition of ours: nothing to say, either
    local workloads, why = read_table()
    if not workloads then return "did nothing: " .. why end
    local comment, name = job.comment or "", job.name or ""
    if name == "wrap" then name = "" end -- the name of every job of sbatch --wrap that was given none
    local is_ours = comment:find("^cotenant:") and #comment < 180 and not comment:find("profile=", 1, true)
    if (comment == "" or is_ours) and name ~= "" then
        -- Slurm tells the prolog the comment, and not the name: jobs of one name are one workload.
        job.comment = (comment == "" and "cotenant:" or comment .. ",") .. "profile=" .. cleaned(name)
    end
    local workload = workload_of(job)
    if not workload then return "did nothing: the comment names no profile" end
    local seen = workloads[workload]
    if not seen then return "did nothing: " .. workload .. " was not seen yet" end
    if seen.counted < SAMPLES or not seen.bandwidth then
        return string.format("did nothing: the bandwidth of %s was counted for %d s", workload, seen.counted)
    end
    local uses = string.format("%s uses %.1f GB/s (%d s seen)", workload, seen.bandwidth / 1e9, seen.counted)
    if seen.bandwidth < BOUND * least * UNIT then return "did nothing: " .. uses end
    local asked = job.tres_per_node or ""
    if (asked .. ","):find("[:/]" .. GRES .. "[:,]") then
        return "did nothing: it asks for " .. GRES .. " itself; " .. uses
    end
    if job.tres_per_job or job.tres_per_socket or job.tres_per_task then
        return "did nothing: it asks for GRES by job, socket or task; " .. uses
    end
    -- A step is given all GRES of its job, so a second one would wait. In batch jobs srun can be told what was asked
    -- for at first; of others the environment is not known here.
    if not job.script or not job.environment then return "did nothing: it is no batch job; " .. uses end
    if (job.environment.SLURM_GRES or "") == "" then
        local others = asked:gsub("gres[:/]", "")
        job.environment.SLURM_GRES = others ~= "" and others or "none"
    end
    -- A job that asked for more than there is would never start.
    local count = math.max(1, math.min(math.ceil(seen.bandwidth / UNIT), math.floor(least)))
    job.tres_per_node = (asked ~= "" and asked .. "," or "") .. string.format("gres:%s:%d", GRES, count)
    return string.format("asks for %s:%d per node: %s", GRES, count, uses)
end

function slurm_job_submit(job, partitions, _)
    local before, comment = job.tres_per_node, job.comment
    local ok, text = pcall(consider, job, partitions)
    if not ok then
        pcall(function() job.tres_per_node, job.comment = before, comment end)
        slurm.log_error("cotenant: %s", tostring(text))
        text = "did nothing: it failed, see slurmctld's log"
    end
    if text then
        local other = job.admin_comment
        job.admin_comment = (other and other ~= "" and other .. "; " or "") .. "cotenant " .. text
    end
    return slurm.SUCCESS
end

function slurm_job_modify(_, _, _, _)
    return slurm.SUCCESS
end

return slurm.SUCCESS
